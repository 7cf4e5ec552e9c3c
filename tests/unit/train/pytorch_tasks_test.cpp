// PyTorch's records of weighted classes, mixed classes, labels and values, which
// tests/support/task_records.py makes: the bounds are those of the other records.
#include <catch2/catch.hpp>
#include <cmath>
#include <iostream>

#include "tests/support/harness/records.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace lockstep::test::pytorch_tasks {
namespace {

constexpr std::size_t rows = 32, outputs = 10, image = 3 * 32 * 32;
constexpr float lr = 0.01f;

/// One kind of loss, its record and what lockstep makes of it.
struct Kind {
  Kind(const std::string& name, LossSpec spec, const Records& from, const Records& usual)
      : group(name + "/"),
        records(from),
        x((from.has(group + "x") ? from : usual)
              .read(from.has(group + "x") ? group + "x" : "batches/x")),
        wanted(from.read(group + "wanted")),
        of_batch(x.size() / 20 / image),
        bench({}, rows, make_cpu_backend({std::vector<std::vector<int>>(2)}), Precision::fp32,
              spec) {}

  /// The images of step k, with what is wanted of them in the bench.
  Values images(std::size_t k) {
    const std::size_t each = wanted.size() / 20 / rows;
    const Values now = batch(wanted, k, rows * each);
    bench.wanted.assign(now.begin(), now.end());
    for (std::size_t row = 0; row < rows; ++row) {
      const auto at = [&](std::size_t i) { return now[row * each + i]; };
      data::Target& target = bench.targets[row];
      target = {0, 0, 1};
      if (each == 1) target.label_a = target.label_b = static_cast<int>(at(0));
      if (each == 3)
        target = {static_cast<int>(at(0)), static_cast<int>(at(1)), static_cast<float>(at(2))};
    }
    Values part = batch(x, k, of_batch * image);
    part.resize(rows * image);
    return part;
  }
  double loss(std::size_t k, const char* of = "loss") const { return records.read(group + of)[k]; }
  double gradient_distance(const std::string& tensor) {
    return distance(bench.export_slice(Part::gradients, bench.slice(tensor)),
                    records.read(group + "gradients/" + record_name(tensor)));
  }
  /// Of all that has been learned, from a recorded state.
  double state_distance(const std::string& state) {
    Values got, want;
    for (std::size_t s = 0; s < bench.layout().learned_slices; ++s) {
      append(got, bench.export_slice(Part::weights, s));
      append(want,
             records.read(group + state + "/" + record_name(bench.layout().slices[s].tensor.name)));
    }
    return distance(got, want);
  }

  std::string group;
  const Records& records;
  Values x, wanted;
  std::size_t of_batch;
  Bench bench;
};

}  // namespace

TEST_CASE("PyTorch's steps with weighted and mixed classes, labels and values", "[records]") {
  const auto path = reference("tasks.h5"), usual = reference("resnet20.h5");
  if (!path || !usual) return;
  const Records records(*path), first(*usual);
  const Values weights = records.read("weights");
  const std::vector<float> each(weights.begin(), weights.end());
  const auto [name, spec] =
      GENERATE_COPY(std::pair{"weighted", LossSpec{.smoothing = 0.1f, .weights = each}},
                    std::pair{"mixed", LossSpec{}},
                    std::pair{"labels", LossSpec{.task = data::Task::labels, .weights = each}},
                    std::pair{"squares", LossSpec{.task = data::Task::values}},
                    std::pair{"huber", LossSpec{.task = data::Task::values, .delta = 0.75f}});
  INFO(name);
  Kind kind(name, spec, records, first);
  Bench& bench = kind.bench;

  bench.import(Part::weights, reading(first, "init"));
  double worst = 0, off = 0;
  for (std::size_t k = 0; k < 20; ++k) {
    INFO("step " << k);
    const double loss = bench.step(kind.images(k), lr), want = kind.loss(k, "loss64");
    worst = std::max(worst, std::abs(kind.loss(k) - want));
    off = std::max(off, std::abs(loss - want));
    CHECK(std::abs(loss - want) <= 3 * worst + 1e-3);
    if (k > 0) continue;
    CHECK(std::abs(loss - want) <= 1e-6 * want);
    CHECK(kind.gradient_distance("conv1.weight") <= 5e-3);  // ReLUs flip, as in the other record
    CHECK(kind.gradient_distance("fc.weight") <= 1e-5);
    CHECK(kind.gradient_distance("fc.bias") <= 1e-5);
  }

  bench.import(Part::weights, reading(records, kind.group + "before/10/weights"));
  bench.import(Part::momentum, reading(records, kind.group + "before/10/momentum"));
  const double loss = bench.step(kind.images(10), lr);
  CHECK(std::abs(loss - kind.loss(10)) <= 2e-6 * kind.loss(10));
  CHECK(kind.state_distance("after/10") <= 2e-5);
  std::cout << name << ": 20 free steps are off by " << off << ", PyTorch's float32 by " << worst
            << "; a step from a recorded state by "
            << std::abs(loss - kind.loss(10)) / kind.loss(10) << ", the next state by "
            << kind.state_distance("after/10") << '\n';
}

}  // namespace lockstep::test::pytorch_tasks
