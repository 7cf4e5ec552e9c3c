// Values that backward makes again instead of keeping them, on the CPU.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/train/trainer.hpp"
#include "ports/cpu/plan/lifetimes.hpp"
#include "ports/cpu/program.hpp"
#include "tests/support/laws/solo.hpp"
#include "tests/support/networks/chains.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

nn::Network small(const std::string& model, std::size_t side) {
  return nn::resnet(nn::usual_resnet(model, side, 10));
}

struct Outcome {
  std::uint32_t hash = 0;
  double loss = 0;
  MemoryPlan memory;
};

bool has_bf16() {
  try {
    make_cpu_backend({})->make_parameters(plain(), Precision::bf16);
  } catch (const InputError&) {
    return false;
  }
  return true;
}

std::vector<Precision> precisions() {
  if (has_bf16()) return {Precision::fp32, Precision::bf16};
  return {Precision::fp32};
}

struct Training {
  std::size_t rows = 1;  ///< of a micro-batch
  std::size_t micro_batches = 1, steps = 10;
};

/// Trains, each step on other pixels. The hash covers weights, momentum and running statistics.
Outcome trained(const nn::Network& network, Precision precision, const Recompute& recompute,
                const Training& how) {
  const std::size_t rows = how.rows, all = how.micro_batches * rows;
  const auto backend = make_cpu_backend({std::vector<std::vector<int>>(2)});
  SoloCommunicator nobody;
  train::TrainerSpec spec;
  spec.network = network;
  spec.program.batch = rows;
  spec.program.precision = precision;
  spec.program.recompute = recompute;
  spec.program.mean = spec.program.stddev = std::vector<float>(network.input.channels, 0.5f);
  train::Trainer trainer(spec, *backend, nobody);
  std::vector<std::uint8_t> pixels(all * network.input.count());
  std::vector<data::Target> targets(all);
  data::Batch batch;
  batch.images = pixels.data();
  batch.targets = targets.data();
  batch.rows = batch.capacity = all;
  Outcome outcome;
  for (std::size_t step = 0; step < how.steps; ++step) {
    for (std::size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<std::uint8_t>(philox(step, i, 0).word[0]);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const auto label = static_cast<std::int32_t>((i + step) % network.classes);
      targets[i] = {label, label, 1};
    }
    outcome.loss += trainer.step(batch, all, 0.0002f).metrics.loss;
  }
  outcome.hash = trainer.parameters().hash();
  outcome.memory = trainer.memory();
  return outcome;
}

void check_same(const Outcome& kept, const Outcome& again) {
  CHECK(again.hash == kept.hash);
  CHECK(std::isfinite(kept.loss));
  CHECK(again.loss == kept.loss);
  CHECK(again.memory.made_again > 0);
  CHECK(again.memory.activations < kept.memory.activations);
}

Recompute segments(std::size_t number) {
  return {.mode = Recompute::Mode::segments, .segments = number};
}
Recompute within(std::size_t limit) {
  return {.mode = Recompute::Mode::automatic, .memory_limit = limit};
}

/// The number in the error of a limit that is too small.
std::size_t smallest_limit(const nn::Network& network, Precision precision, std::size_t rows) {
  try {
    trained(network, precision, within(1), {.rows = rows, .steps = 0});
  } catch (const InputError& error) {
    const std::string text = error.what();
    const std::size_t at = text.find("at least ");
    REQUIRE(at != std::string::npos);
    return std::stoull(text.substr(at + 9));
  }
  FAIL("a limit of one byte was accepted");
  return 0;
}

}  // namespace

TEST_CASE("ten steps of resnet20 give the same bits whatever is made again",
          "[recompute][cpu][large]") {
  const nn::Network network = small("resnet20", 16);
  for (const Precision precision : precisions()) {
    const Outcome kept = trained(network, precision, {}, {.rows = 3, .micro_batches = 2});
    CHECK(kept.memory.made_again == 0);
    const std::size_t limit = smallest_limit(network, precision, 3);
    for (const Recompute& recompute : {segments(2), segments(5), within(limit)})
      check_same(kept, trained(network, precision, recompute, {.rows = 3, .micro_batches = 2}));
  }
}

TEST_CASE("ten steps of larger models give the same bits whatever is made again",
          "[recompute][cpu][slow][large]") {
  const auto* model = GENERATE("resnet18", "resnet50");
  const nn::Network network = small(model, 32);
  for (const Precision precision : precisions()) {
    INFO(model << " " << to_string(precision));
    check_same(trained(network, precision, {}, {.rows = 2}),
               trained(network, precision, segments(4), {.rows = 2}));
  }
}

TEST_CASE("any choice of spans gives the same bits, for every pattern of the networks",
          "[recompute][cpu]") {
  for (const nn::Network& network : all_sketches()) {
    const Outcome kept = trained(network, Precision::fp32, {}, {.rows = 3, .steps = 2});
    const std::size_t most = cpu::cut_units(network, cpu::lower(network)).size() + 1;
    for (std::size_t number = 1; number <= most; ++number) {
      INFO(network.name << " in " << number << " segments");
      CHECK(trained(network, Precision::fp32, segments(number), {.rows = 3, .steps = 2}).hash ==
            kept.hash);
    }
    CHECK_THROWS_WITH(
        trained(network, Precision::fp32, segments(most + 1), {.rows = 3, .steps = 0}),
        Catch::Contains("at most " + std::to_string(most) + " segments"));
  }
}

TEST_CASE("a limit is kept; the smallest possible one is named, and is possible",
          "[recompute][cpu]") {
  const nn::Network network = small("resnet20", 32);
  const std::size_t least = smallest_limit(network, Precision::fp32, 8);
  const auto parameters = make_cpu_backend({})->make_parameters(network, Precision::fp32);
  const std::size_t fixed = 3 * sizeof(float) * parameters->layout().size;
  const auto total = [&](const MemoryPlan& plan) {
    return fixed + plan.activations + plan.workspace;
  };
  const std::size_t most =
      total(trained(network, Precision::fp32, {}, {.rows = 8, .steps = 0}).memory);
  CHECK(least < most);
  const std::size_t cuts = cpu::cut_units(network, cpu::lower(network)).size();
  for (std::size_t number = 1; number <= cuts + 1; ++number)  // whatever a fixed choice reaches
    CHECK(
        least <=
        total(trained(network, Precision::fp32, segments(number), {.rows = 8, .steps = 0}).memory));
  CHECK_THROWS_WITH(trained(network, Precision::fp32, within(least - 1), {.rows = 8, .steps = 0}),
                    Catch::Contains("memory-limit = " + std::to_string(least - 1)) &&
                        Catch::Contains("at least " + std::to_string(least) + " bytes"));
  double before = 2;
  for (const std::size_t part : {0u, 1u, 3u, 6u, 10u}) {
    const std::size_t limit = least + (most - least) * part / 10;
    const MemoryPlan plan =
        trained(network, Precision::fp32, within(limit), {.rows = 8, .steps = 0}).memory;
    INFO(least << " at least, " << most << " at most, limit " << limit);
    CHECK(total(plan) <= limit);
    CHECK(plan.made_again <= before);
    before = plan.made_again;
  }
  CHECK(before == 0);
  CHECK_THROWS_WITH(trained(network, Precision::fp32, within(0), {.rows = 8, .steps = 0}),
                    Catch::Contains("recompute = auto needs memory-limit"));
}

TEST_CASE("what a process needs for other things, or between steps, is a part of the limit",
          "[recompute][cpu]") {
  const nn::Network network = small("resnet20", 16);
  const auto fits = [&](const Recompute& recompute) {
    return trained(network, Precision::fp32, recompute, {.rows = 4, .steps = 0}).memory;
  };
  const std::size_t least = smallest_limit(network, Precision::fp32, 4);
  Recompute recompute = within(least + 4095);
  recompute.reserved = 4096;
  CHECK_THROWS_WITH(fits(recompute),
                    Catch::Contains("at least " + std::to_string(least + 4096) + " bytes"));
  recompute.memory_limit = least + 4096;
  recompute.between_steps = fits(recompute).activations;
  CHECK_NOTHROW(fits(recompute));
  recompute.between_steps += 64;
  CHECK_THROWS_WITH(fits(recompute),
                    Catch::Contains("at least " + std::to_string(least + 4096 + 64) + " bytes"));
}

TEST_CASE("the planner's costs add up to the memory of any plan, and its plan is the best of all",
          "[recompute][cpu]") {
  for (const char* model : {"resnet20", "resnet18"}) {
    const nn::Network network = small(model, 32);
    const std::vector<cpu::Unit> units = cpu::lower(network);
    // The buffers of a program: each unit's value, and its gradient.
    std::vector<cpu::BufferRequest> requests;
    for (std::size_t u = 0; u < units.size(); ++u) {
      if (units[u].kind == cpu::UnitKind::head) continue;
      const std::size_t bytes = 4 * network.nodes[units[u].node].shape.count();
      if (units[u].in_region) requests.push_back({cpu::BufferRequest::Kind::value, bytes, u, 0, 0});
      if (units[u].kind == cpu::UnitKind::point)
        requests.push_back({cpu::BufferRequest::Kind::backward, bytes, 0, units[u].level,
                            units[units[u].skip.value_or(*units[u].input)].level});
      else
        requests.push_back(
            {cpu::BufferRequest::Kind::forward, bytes / 8, 0, units[u].level, units[u].level});
    }
    cpu::Lifetimes lifetimes(network, units, requests, ProgramSpec{});
    const Chain chain(lifetimes.segments(), [&](const Span& span) { return lifetimes.cost(span); });
    check_plans(chain, [&](const Spans& way) {
      lifetimes.choose(way);
      return lifetimes.peak();
    });
  }
}
