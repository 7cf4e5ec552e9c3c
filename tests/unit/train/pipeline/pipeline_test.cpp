// The stages of a network, each in a thread, whose messages are in queues.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/crc32c.hpp"
#include "lockstep/nn/partition.hpp"
#include "tests/support/queues.hpp"
#include "tests/unit/train/trainer_fixture.hpp"
#include "train/pipeline/pipeline.hpp"

using namespace lockstep;
using namespace lockstep::test;
using namespace lockstep::train;
using config::PipelineOrder;

namespace {

using Lines = std::multiset<std::string>;
constexpr std::size_t steps = 2;

/// What a stage holds after some steps, a line for each tensor, and the last one what it saw.
std::string train_stage(comm::Communicator& world, PipelineOrder order, const std::string& keys) {
  const config::Config config = given("accumulate = 3\n" + keys);
  TrainerSpec spec = make_trainer_spec(config, small_data(), 1);
  comm::GridAxis stages{.index = world.rank(), .count = world.world(), .ranks = {}};
  stages.ranks.resize(static_cast<std::size_t>(world.world()));
  std::iota(stages.ranks.begin(), stages.ranks.end(), 0);
  Pipeline pipeline({order, config.accumulate}, spec.network, world, stages);
  const nn::Network whole = spec.network;
  spec.program.whole = &whole;
  spec.network = pipeline.own(spec.network);
  const auto backend = backend::make_cpu_backend({});
  const auto alone = world.split(world.rank(), 0, "alone");
  Trainer trainer(spec, *backend, *alone, &pipeline);
  const Rows rows;
  data::Batch batch = rows.batch;
  if (!pipeline.is_first()) {
    batch.images = nullptr;
    batch.targets = nullptr;
  }
  std::string told;
  for (std::size_t step = 0; step < steps; ++step) {
    const StepReport report = trainer.step(batch, few_rows, 0.05f);
    if (!pipeline.is_last()) continue;
    told += fmt::format("loss {}, top-1 {}", report.metrics.loss, report.metrics.top1);
    if (report.gradient_norm) told += fmt::format(", norm {}", *report.gradient_norm);
    if (report.trust)
      told += fmt::format(", trust {} {} {}", report.trust->smallest, report.trust->median,
                          report.trust->largest);
    told += '\n';
  }
  const nn::ArenaLayout& layout = trainer.parameters().layout();
  for (const backend::Part part : {backend::Part::weights, backend::Part::momentum}) {
    const auto values = state(trainer, part);
    for (std::size_t s = 0; s < values.size(); ++s)
      told += fmt::format(
          "{} of {}: {:08x}\n", part == backend::Part::weights ? "weights" : "momentum",
          layout.slices[s].tensor.name, crc32c(values[s].data(), values[s].size() * sizeof(float)));
  }
  return told;
}

/// Of all stages.
Lines lines_of(Queues& queues, int stages, bool copies, PipelineOrder order,
               const std::string& keys) {
  Lines lines;
  for (const std::string& told :
       threads_tell(queues, stages, copies,
                    [&](comm::Communicator& world) { return train_stage(world, order, keys); })) {
    std::istringstream text(told);
    for (std::string line; std::getline(text, line);) lines.insert(line);
  }
  return lines;
}

/// What passes the boundaries of that many stages in a step.
std::size_t bytes_of_step(std::size_t stages) {
  const nn::Network network = make_trainer_spec(given(""), small_data(), 1).network;
  std::size_t bytes = few_rows * sizeof(data::Target);
  for (const nn::Network& stage : nn::split(network, nn::balanced_cuts(network, stages)))
    if (stage.nodes.back().op == nn::Op::send)
      bytes += few_rows * stage.nodes.back().shape.count() * sizeof(float) *
               (1 + stage.nodes.back().gradients);
  return bytes;
}

}  // namespace

TEST_CASE("stages hold each tensor once, with the bits of one rank that accumulates",
          "[pipeline][slow]") {
  for (const std::string keys : {"optim.clip-norm = 0.05\n", "optim.rule = \"lars\"\n"}) {
    Queues of_one;
    const Lines alone = lines_of(of_one, 1, false, PipelineOrder::gpipe, keys);
    REQUIRE(alone.size() > 190);
    for (const int stages : {2, 3, 4, 8})
      for (const PipelineOrder order :
           {PipelineOrder::gpipe, PipelineOrder::one_f_one_b, PipelineOrder::zb_h1}) {
        INFO(stages << " stages, " << choice_name(order) << ", " << keys);
        Queues queues;
        CHECK(lines_of(queues, stages, stages % 2 == 0, order, keys) == alone);
      }
  }
}

TEST_CASE("stages send their boundaries' values and gradients, and hardly more", "[pipeline]") {
  for (const int stages : {2, 4}) {
    Queues queues;
    lines_of(queues, stages, false, PipelineOrder::one_f_one_b, "");
    const std::size_t formula = steps * bytes_of_step(static_cast<std::size_t>(stages));
    constexpr std::size_t of_start = 1000;  // groups, for each rank
    INFO(stages << " stages");
    CHECK(queues.bytes >= formula);
    CHECK(queues.bytes <= formula + of_start * static_cast<std::size_t>(stages));
  }
}

TEST_CASE("a message comes while the stage that takes it computes something else", "[pipeline]") {
  std::atomic<bool> has_left{false};
  const auto story = [&](comm::Communicator& world) -> std::string {
    TrainerSpec spec = make_trainer_spec(given("accumulate = 3\n"), small_data(), 1);
    const comm::GridAxis stages{.index = world.rank(), .count = 2, .ranks = {0, 1}};
    Pipeline pipeline({PipelineOrder::gpipe, 3}, spec.network, world, stages);
    const auto backend = backend::make_cpu_backend({});
    const nn::Network own = pipeline.own(spec.network);
    const auto parameters = backend->make_parameters(own, spec.program.precision);
    spec.program.slots = pipeline.slots();
    const auto program = backend->compile(own, spec.program, *parameters);
    const std::size_t rows = spec.program.batch;
    pipeline.begin({rows, rows, rows}, backend->device().compute());
    using enum StagePiece::Do;
    const auto pass = [&](StagePiece::Do what, std::size_t micro) {
      program->select(micro);
      pipeline.pass({what, micro, micro}, *program, [] {});
    };
    constexpr double limit_s = 20;
    if (pipeline.is_first()) {
      for (const std::size_t micro : {0u, 1u}) {
        program->select(micro);
        std::ranges::fill(program->sent().values, std::byte{7});
        pass(give_values, micro);
      }
      pipeline.settle([] {});
      has_left = true;
      pass(give_values, 2);
      pass(take_gradients, 0);
      return "";
    }
    pass(take_values, 0);
    for (Countdown left(limit_s); !has_left && !left.over();) pipeline.progress();
    if (!has_left) return "values of micro-batch 2 wait until they are taken";
    pass(take_values, 1);
    const std::span<const std::byte> values = program->received().values;
    if (std::ranges::find_if(values, [](std::byte b) { return b != std::byte{7}; }) != values.end())
      return "other values have come";
    pass(take_values, 2);
    pass(give_gradients, 0);
    pipeline.settle([] {});
    return "";
  };
  Queues queues;
  CHECK(threads_tell(queues, 2, false, story) == std::vector<std::string>{"", ""});
}
