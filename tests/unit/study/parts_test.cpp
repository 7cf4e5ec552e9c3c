#include "lockstep/study/parts/parts.hpp"

#include <catch2/catch.hpp>

#include "lockstep/nn/partition.hpp"
#include "lockstep/nn/resnet.hpp"

using namespace lockstep;
using namespace lockstep::study;

namespace {

constexpr std::size_t no_limit = std::size_t{1} << 60;

/// A question about a network on CPUs, whose messages take no time.
struct Asked {
  std::unique_ptr<backend::Backend> backend = backend::make_cpu_backend({});
  PartsSpec spec;
  Asked(const std::string& model, std::size_t side, std::size_t ranks, std::size_t batch) {
    spec.network = nn::resnet(nn::usual_resnet(model, side, 10));
    spec.program.mean = spec.program.stddev = {0.5f, 0.5f, 0.5f};
    spec.program.lanes = 1;
    spec.ranks = spec.per_node = ranks;
    spec.batch = batch;
    spec.bucket_bytes = 1 << 20;
    spec.memory_limit = no_limit;
    const MachineProfile ideal = ideal_machine();
    spec.pace = pace_for(ideal.device, spec.network, backend::Precision::fp32);
    spec.links = ideal.network;
    spec.memory = [this](const nn::Network& network, const backend::ProgramSpec& program) {
      return backend->plan(network, program);
    };
    spec.other_bytes = [](const Parts&, std::size_t) { return std::size_t{1000}; };
    spec.sum = [](const Layout&, double) { return ReduceCost{}; };
  }
  Asked(const Asked&) = delete;
};

}  // namespace

TEST_CASE("a byte less than the answer needs changes the answer, down to the least that would do",
          "[parts]") {
  Asked asked("resnet20", 32, 2, 16);
  PartsAnswer answer = plan_parts(asked.spec);
  std::size_t answers = 0;
  while (!answer.fitting.empty()) {
    ++answers;
    REQUIRE(answers < 100);
    const PlannedParts first = answer.fitting.front();
    CHECK(first.memory.bytes <= asked.spec.memory_limit);
    CHECK(memory_of(asked.spec, first.parts).bytes == first.memory.bytes);
    asked.spec.memory_limit = first.memory.bytes - 1;
    answer = plan_parts(asked.spec);
    if (answer.fitting.empty()) break;
    const PlannedParts& next = answer.fitting.front();
    CHECK((next.parts != first.parts || next.memory.made_again != first.memory.made_again));
    CHECK(next.step.step_ms >= first.step.step_ms * (1 - 1e-9));
  }
  CHECK(answers > 3);
  REQUIRE(answer.smallest);
  asked.spec.memory_limit = answer.smallest->memory.bytes;
  REQUIRE_FALSE(plan_parts(asked.spec).fitting.empty());
  --asked.spec.memory_limit;
  CHECK(plan_parts(asked.spec).fitting.empty());
}

TEST_CASE("the answer is the fastest of all ways that fit, and the next one up does not",
          "[parts]") {
  Asked asked("resnet20", 32, 4, 16);
  asked.spec.memory_limit = memory_of(asked.spec, {.replicas = 4, .micro_batches = 2}).bytes;
  const PartsAnswer answer = plan_parts(asked.spec);
  REQUIRE_FALSE(answer.fitting.empty());
  REQUIRE(answer.too_large);
  CHECK(answer.too_large->memory.bytes > asked.spec.memory_limit);
  CHECK(answer.too_large->step.step_ms <= answer.fitting.front().step.step_ms * (1 + 1e-9));
  for (const std::size_t stages : {1, 2, 4})
    for (const std::size_t m : {1, 2, 4, 8, 16})
      for (const bool again : {false, true}) {
        const Parts parts{
            .replicas = 4 / stages, .stages = stages, .micro_batches = m, .again = again};
        if (m > 16 / parts.replicas) continue;
        const RanksMemory memory = memory_of(asked.spec, parts);
        if (memory.bytes > asked.spec.memory_limit) continue;
        CHECK(time_of(asked.spec, parts, memory.made_again).step_ms >=
              answer.fitting.front().step.step_ms * (1 - 1e-9));
      }
}

TEST_CASE("one rank with values made again takes less memory than stages, and the answer says so",
          "[parts]") {
  Asked asked("resnet50", 64, 2, 16);
  asked.spec.fixed.stages = 2;
  asked.spec.fixed.micro_batches = 8;
  asked.spec.fixed.order = train::PipelineOrder::one_f_one_b;
  const PartsAnswer answer = plan_parts(asked.spec);
  REQUIRE(answer.fitting.size() == 1);
  const std::size_t alone =
      memory_of(asked.spec, {.stages = 1, .micro_batches = 8, .again = true}).bytes;
  CHECK(answer.without_stages.has_value() ==
        (answer.without_stages &&
         answer.without_stages->memory.bytes < answer.fitting.front().memory.bytes));
  CHECK(alone > 0);
}

TEST_CASE("tiles and stages take their share of a rank's time, and no more than the largest part",
          "[parts]") {
  Asked asked("resnet50", 256, 4, 4);
  const double alone = time_of(asked.spec, {.replicas = 1}).step_ms;
  // All tiles make the last layer.
  CHECK(time_of(asked.spec, {.tiles = 2}).step_ms == Approx(alone / 2).epsilon(1e-4));
  CHECK(time_of(asked.spec, {.tiles = 4}).step_ms == Approx(alone / 4).epsilon(1e-4));
  const Parts two{.stages = 2, .micro_batches = 4};
  const auto cuts = nn::balanced_cuts(asked.spec.network, 2);
  const double all = nn::training_work(asked.spec.network, 0, asked.spec.network.nodes.size()),
               first = nn::training_work(asked.spec.network, 0, cuts[0] + 1),
               largest = std::max(first, all - first) / all;
  const double step = time_of(asked.spec, two).step_ms;
  CHECK(step > alone * largest);
  CHECK(step < alone * largest * 5 / 4 * (1 + 1e-9));
}

TEST_CASE("what a program would take is what it takes when it is there", "[parts][memory]") {
  Asked asked("resnet18", 64, 1, 8);
  const auto networks = nn::split(asked.spec.network, nn::balanced_cuts(asked.spec.network, 2));
  using Mode = backend::Recompute::Mode;
  for (const nn::Network& network : {asked.spec.network, networks[0], networks[1]})
    for (const std::size_t later : {0, 2})
      for (const backend::Recompute& recompute :
           {backend::Recompute{}, backend::Recompute{.mode = Mode::segments, .segments = 2},
            backend::Recompute{.mode = Mode::least}}) {
        if (later > 0 && recompute.mode != Mode::none) continue;
        backend::ProgramSpec program = asked.spec.program;
        program.batch = 4;
        program.lanes = 2;
        program.slots = 3;
        program.weights_later = later;
        program.recompute = recompute;
        program.whole = &network == &networks[0] ? &asked.spec.network : nullptr;
        const backend::PlannedMemory planned = asked.backend->plan(network, program);
        const auto parameters = asked.backend->make_parameters(network, program.precision);
        const auto there = asked.backend->compile(network, program, *parameters)->memory();
        CHECK(planned.program.activations == there.activations);
        CHECK(planned.program.workspace == there.workspace);
        CHECK(planned.program.made_again == there.made_again);
        CHECK(planned.parameters == 3 * sizeof(float) * parameters->layout().size);
      }
}
