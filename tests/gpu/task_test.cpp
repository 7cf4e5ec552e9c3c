// Networks that say labels, values and weighted classes, on the GPU and on the CPU: loss, counts
// and gradients, for images of every element. The emulated tests run the same cases on the host.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "lockstep/base/rng.hpp"
#include "lockstep/data/element_bytes.hpp"
#include "tests/gpu/fixture.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;
using data::Element;
using data::Task;

namespace lockstep::test::gpu_tasks {
namespace {

constexpr std::size_t rows = 12;

/// Rows of which some outputs are not known, nothing is known, or that are padding.
struct Rows {
  Rows(const nn::Network& network, Element element, Task task) {
    for (std::size_t i = 0; i < rows * network.input.count(); ++i)
      data::append_element(element, static_cast<float>(draw(3, 1, i, Draw::synth) % 256), images);
    for (std::size_t i = 0; i < rows * network.classes; ++i) {
      const auto drawn = static_cast<float>(draw(3, 2, i, Draw::synth) % 64);
      wanted.push_back(task == Task::values ? drawn / 16 - 2 : drawn < 24 ? 1.f : 0.f);
      if (i % 5 == 4) wanted.back() = std::numeric_limits<float>::quiet_NaN();
    }
    std::fill_n(&wanted[network.classes], network.classes, wanted[4]);
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(rows); ++i)
      targets.push_back(task == Task::classes ? data::Target{i % 3, i % 2, 0.75f}
                                              : data::Target{0, 0, 1});
    targets.back() = {};
  }
  data::Batch batch(std::uint64_t index) const {
    return {.images = images.data(),
            .targets = targets.data(),
            .wanted = wanted.data(),
            .rows = rows - 1,
            .capacity = rows,
            .index = index};
  }
  std::vector<std::uint8_t> images;
  std::vector<float> wanted;
  std::vector<data::Target> targets;
};

struct How {
  LossSpec loss;
  Element element;
  Precision precision;
};

/// What one step with two times the same micro-batch gives.
struct Result {
  Metrics metrics;
  std::map<std::string, std::vector<double>> gradients;
};

Result result_of(const Case& c, const How& how, std::unique_ptr<Backend> on) {
  Compiled compiled(c, rows, std::move(on), how.precision, true);
  ProgramSpec spec = compiled.program->spec();
  spec.loss = how.loss;
  spec.element = how.element;
  const bool bytes = how.element == Element::u8;
  spec.mean.assign(c.network.input.channels, bytes ? 0.5f : 127.5f);
  spec.stddev.assign(c.network.input.channels, bytes ? 0.29f : 74.f);
  compiled.program = compiled.backend->compile(c.network, spec, *compiled.parameters);
  if (has_loss_scale(how.precision)) compiled.parameters->set_loss_scale({1, 0, 0, 0});
  const Rows of(c.network, how.element, how.loss.task);
  Program& program = *compiled.program;
  for (const bool second : {false, true}) {
    program.set_scalars({0.1f, 1.f / (2 * (rows - 1)), 0.5f});
    const data::Batch batch = of.batch(second);
    program.load(batch);
    for (const TapeStep& step : program.forward()) step.run();
    for (const TapeStep& step : program.backward(second)) step.run();
  }
  Result result{.metrics = program.take_metrics(), .gradients = {}};
  const nn::ArenaLayout& layout = compiled.parameters->layout();
  for (std::size_t s = 0; s < layout.learned_slices; ++s) {
    const std::vector<float> values = compiled.exported(Part::gradients, s);
    result.gradients[layout.slices[s].tensor.name] = {values.begin(), values.end()};
  }
  return result;
}

double distance_between(const Result& got, const Result& want) {
  std::vector<float> all;
  std::vector<double> wanted;
  for (const auto& [name, values] : want.gradients) {
    all.insert(all.end(), got.gradients.at(name).begin(), got.gradients.at(name).end());
    wanted.insert(wanted.end(), values.begin(), values.end());
  }
  return distance(all, wanted);
}

}  // namespace

TEST_CASE(
    "loss, counts and gradients of labels, values and weighted classes are the CPU's, every "
    "element and precision",
    "[gpu]") {
  if (!gpu()) return;
  const Case c(plain(), rows, 5);
  for (const LossSpec& loss :
       {LossSpec{.task = Task::labels, .smoothing = 0.1f}, LossSpec{.task = Task::values},
        LossSpec{.task = Task::values, .delta = 0.75f}})
    for (const Element element :
         {Element::u8, Element::u16, Element::i16, Element::f16, Element::f32}) {
      const Result want = result_of(c, {loss, element, Precision::fp32},
                                    make_cpu_backend({std::vector<std::vector<int>>(2)}));
      CHECK(want.metrics.rows == 2 * (rows - 1));
      for (const Precision precision :
           {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
        INFO(choice_name(loss.task) << " of " << choice_name(element) << " in "
                                    << to_string(precision) << ", delta " << loss.delta);
        const Result got = result_of(c, {loss, element, precision}, gpu());
        const Tolerance within = tolerance_of(precision, c.network);
        CHECK(std::abs(got.metrics.loss - want.metrics.loss) <=
              within.loss * std::abs(want.metrics.loss));
        CHECK(got.metrics.rows == want.metrics.rows);
        CHECK(distance_between(got, want) <= within.gradient);
        if (precision == Precision::fp32 && loss.task == Task::labels)
          CHECK(got.metrics.sums == want.metrics.sums);
        if (loss.task == Task::values)
          CHECK(got.metrics.sums[1] == Approx(want.metrics.sums[1]).epsilon(2 * within.loss));
      }
    }
}

TEST_CASE("a batch with targets says what is wanted of its labels, or is an error", "[gpu]") {
  if (!gpu()) return;
  const Case c(plain(), rows, 5);
  const Compiled compiled(c, rows, gpu(), Precision::fp32);
  ProgramSpec spec = compiled.program->spec();
  spec.loss = {.task = Task::labels};
  const auto program = compiled.backend->compile(c.network, spec, *compiled.parameters);
  const Rows of(c.network, Element::u8, Task::labels);
  data::Batch batch = of.batch(0);
  batch.wanted = nullptr;
  CHECK_THROWS_WITH(program->load(batch), Catch::Contains("what is wanted of its outputs"));
  CHECK_NOTHROW(program->load(of.batch(0)));
}

}  // namespace lockstep::test::gpu_tasks
