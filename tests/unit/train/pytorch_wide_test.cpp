// PyTorch's records of ResNets on 12 channels of 16 bits and 19 labels, which
// tests/support/wide_records.py makes: too large to be kept.
#include <catch2/catch.hpp>
#include <cmath>
#include <iostream>

#include "tests/support/harness/records.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace lockstep::test::pytorch_wide {
namespace {

constexpr std::size_t many = 16, few = 4, channels = 12, labels = 19, side = 64, steps = 20;
constexpr std::size_t largest = 65536, each = 16;  // of larger tensors each 16th number is recorded
constexpr float lr = 0.01f;

nn::ResNetSpec spec_of(const std::string& model) {
  nn::ResNetSpec spec;
  spec.model = model;
  spec.height = spec.width = side;
  spec.channels = channels;
  spec.classes = labels;
  return spec;
}

std::vector<float> floats(const Values& values) { return {values.begin(), values.end()}; }

/// The record, and lockstep's network on it.
struct Wide {
  Wide(const std::string& path, const std::string& model, std::size_t row_count)
      : records(path),
        rows(row_count),
        bench(spec_of(model), rows, make_cpu_backend({std::vector<std::vector<int>>(2)}),
              Precision::fp32,
              {.task = data::Task::labels, .weights = floats(records.read("positive"))}) {
    ProgramSpec spec = bench.program->spec();
    spec.element = data::Element::u16;
    spec.mean = floats(records.read("mean"));
    spec.stddev = floats(records.read("stddev"));
    bench.program = bench.backend->compile(bench.network, spec, *bench.parameters);
    for (data::Target& target : bench.targets) target = {0, 0, 1};
    import_resnet50(bench);
  }
  /// The k-th images of `group` as they lie in a batch, with what is wanted of them.
  data::Batch batch(const std::string& group, std::size_t k) {
    if (x.empty()) x = records.read(group + "images"), wanted = records.read(group + "wanted");
    constexpr std::size_t pixels = side * side;
    const std::size_t count = rows * channels * pixels;
    numbers.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t row = i / (channels * pixels), p = i / channels % pixels, c = i % channels;
      numbers[i] = static_cast<std::uint16_t>(x[k * count + (row * channels + c) * pixels + p]);
    }
    bench.wanted = floats(test::batch(wanted, k, rows * labels));
    return {.images = reinterpret_cast<const std::uint8_t*>(numbers.data()),
            .targets = bench.targets.data(),
            .wanted = bench.wanted.data(),
            .rows = rows,
            .capacity = rows};
  }
  std::string name(std::size_t k, const char* of) const {
    return "step/" + std::to_string(k) + "/" + of + "/";
  }
  /// Calls visit(slice, number in the record) for each learned tensor, in the network's order.
  void visit(const std::function<void(std::size_t slice, const std::string& number)>& call) const {
    std::size_t index = 0;
    for (const nn::Tensor& tensor : nn::tensors(bench.network))
      if (nn::learned(tensor.role)) call(bench.slice(tensor.name), std::to_string(index++));
  }
  void import(Part part, const std::string& group) {
    visit([&](std::size_t slice, const std::string& number) {
      bench.parameters->import_slice(part, slice, floats(records.read(group + number)));
    });
  }
  /// Of all tensors as one vector, and of that which differs most.
  GradientDistance distance_to(Part part, const std::string& group) const {
    GradientDistance result;
    Values got, want;
    visit([&](std::size_t slice, const std::string& number) {
      Values mine = bench.export_slice(part, slice);
      const std::size_t step = mine.size() <= largest ? 1 : each;
      for (std::size_t i = 0; step * i < mine.size(); ++i) mine[i] = mine[step * i];
      mine.resize((mine.size() + step - 1) / step);
      const Values theirs = records.read(group + number);
      const double d = distance(mine, theirs);
      if (!(d <= result.worst_tensor)) result.worst_tensor = d;
      append(got, mine);
      append(want, theirs);
    });
    result.whole = distance(got, want);
    return result;
  }

  Records records;
  std::size_t rows;
  Values x, wanted;
  Bench bench;
  std::vector<std::uint16_t> numbers;
};

}  // namespace

TEST_CASE("PyTorch's steps of ResNets with 12 channels of 16 bits and 19 labels",
          "[records][large]") {
  const std::string model = GENERATE("resnet50", "resnet20");
  const auto path = reference("wide-" + model + ".h5");
  if (!path) return;
  for (const std::size_t k : {0u, 10u}) {
    INFO("from the state before step " << k);
    Wide wide(*path, model, few);
    Bench& bench = wide.bench;
    if (k > 0) {
      wide.import(Part::weights, wide.name(k, "weights"));
      wide.import(Part::momentum, wide.name(k, "momentum"));
    }
    const std::string group = "step/" + std::to_string(k) + "/";
    const Values losses = wide.records.read(group + "loss64");
    GradientDistance best{.whole = 1, .worst_tensor = 1};  // where no ReLU flips
    for (std::size_t b = losses.size(); b-- > 0;) {
      const double loss = bench.gradients(wide.batch(group, b), lr);
      INFO("batch " << b << ": " << loss);
      CHECK(std::abs(loss - losses[b]) <= 1e-6 * losses[b]);
      const GradientDistance off =
          wide.distance_to(Part::gradients, wide.name(k, "gradient") + std::to_string(b) + "/");
      CHECK(off.whole <= 5e-2);
      if (!(off.whole >= best.whole)) best = off;
    }
    CHECK(best.whole <= 1e-4);
    CHECK(best.worst_tensor <= 1e-4);
    bench.step(wide.batch(group, 0), lr);
    const GradientDistance next = wide.distance_to(Part::weights, wide.name(k, "after"));
    CHECK(next.whole <= 2e-5);
    std::cout << model << " from step " << k << ": gradients off by " << best.whole
              << ", the worst tensor by " << best.worst_tensor << ", the next weights by "
              << next.whole << '\n';
  }
}

TEST_CASE("PyTorch's 20 free steps of ResNets with 12 channels and 19 labels", "[records][large]") {
  const std::string model = GENERATE("resnet50", "resnet20");
  const auto path = reference("wide-" + model + ".h5");
  if (!path) return;
  Wide wide(*path, model, many);
  const Values exact = wide.records.read("loss64"), torch = wide.records.read("loss");
  double off = 0, theirs = 0;
  for (std::size_t k = 0; k < steps; ++k) {
    INFO("step " << k);
    const double loss = wide.bench.step(wide.batch("", k), lr);
    off = std::max(off, std::abs(loss - exact[k]));
    theirs = std::max(theirs, std::abs(torch[k] - exact[k]));
    CHECK(std::abs(loss - exact[k]) <= 2e-3);
  }
  std::cout << model << ": 20 free steps are off by " << off << ", PyTorch's float32 by " << theirs
            << '\n';
}

}  // namespace lockstep::test::pytorch_wide
