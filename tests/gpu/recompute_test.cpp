// Values made again, micro-batches in flight and stages, on a GPU: the bits stay, or the numbers do
// where a card has no bits to keep. The tests in tests/emulated run the same cases on the host.
#include <cuda_runtime.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cuda/device.hpp"
#include "ports/cuda/plan/plan.hpp"
#include "ports/cuda/program.hpp"
#include "ports/cuda/runtime/stream.hpp"
#include "tests/gpu/compiled.hpp"
#include "tests/gpu/fixture.hpp"
#include "tests/support/networks/stages.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;
using namespace lockstep::test::compiled;

namespace {

/// What some steps of two micro-batches leave.
struct Outcome {
  std::uint32_t hash = 0;  ///< of weights, momentum and running statistics
  double loss = 0;
  Tensors momentum;
  MemoryPlan memory;
};

Outcome trained(const Case& c, const How& how, std::size_t steps) {
  Ready compiled(c.network, c, how);
  const nn::ArenaLayout& layout = compiled.parameters->layout();
  const optim::UpdateRule rule{.formula = optim::Sgd{.momentum = 0.9f},
                               .weight_decay = std::vector<float>(layout.slices.size(), 1e-3f)};
  const optim::StepScalars scalars{
      .lr = 0.02f, .gradient_scale = 0.5f / rows, .statistics_share = 0.5f};
  for (std::size_t step = 0; step < steps; ++step) {
    for (const bool second : {false, true}) {
      compiled.program->set_scalars(scalars);
      compiled.load(c, second);
      compiled.run(compiled.program->forward());
      compiled.run(compiled.program->backward(second));
    }
    compiled.backend->judge_gradients(*compiled.parameters);
    compiled.backend->update(*compiled.parameters, rule, scalars, 0, layout.learned_slices);
    compiled.backend->update_statistics(*compiled.parameters, 2);
  }
  return {compiled.parameters->hash(), compiled.program->take_metrics().loss, compiled.momentum(),
          compiled.program->memory()};
}

/// A line for each convolution, with the engines of its passes.
std::string engines_of(const Ready& compiled) {
  std::string engines;
  for (const cuda::PlannedUnit& p :
       dynamic_cast<cuda::CudaProgram&>(*compiled.program).plan().units) {
    if (!p.conv) continue;
    engines += p.unit.name;
    for (const cuda::ConvPlan* plan :
         {p.conv->forward, p.conv->data_gradient, p.conv->weight_gradient})
      if (plan) engines += ' ' + plan->engine();
    engines += '\n';
  }
  return engines;
}

void check_same(const Outcome& kept, const Outcome& again) {
  CHECK(again.hash == kept.hash);
  CHECK(kept.loss == kept.loss);
  CHECK(again.loss == kept.loss);
}

std::size_t comparable_steps(const How& how) { return repeats(how) ? 2 : 1; }

/// The same bits after comparable_steps(), or near numbers where they do not repeat.
void check_alike(const Outcome& kept, const Outcome& again, const Nearness& near, const How& how) {
  if (repeats(how)) return check_same(kept, again);
  CHECK(distance(again.momentum, kept.momentum) <= near.gradient);
  CHECK(std::abs(again.loss / kept.loss - 1) <= near.loss);
}

}  // namespace

TEST_CASE("a GPU gives the same whatever backward makes again, for every pattern and fused",
          "[gpu][recompute]") {
  if (!gpu()) return;
  for (const nn::Network& network : all_sketches()) {
    const Case c(network, 2 * rows, 5);
    for (const How& plain : {How{}, How{.precision = Precision::fp16, .fused = true}}) {
      const std::size_t steps = comparable_steps(plain);
      const Outcome kept = trained(c, plain, steps);
      CHECK(kept.memory.made_again == 0);
      const std::size_t most = Ready(network, c, plain).most_segments();
      CHECK(most > 1);
      for (std::size_t number = 1; number <= most; ++number) {
        INFO(network.nodes.size() << " nodes in " << number << " segments"
                                  << (plain.fused ? ", fused" : ""));
        How how = plain;
        how.recompute = segments(number);
        const Outcome again = trained(c, how, steps);
        check_alike(kept, again, Nearness(network), how);
        CHECK((number == 1 || again.memory.made_again > 0));
      }
      How how = plain;
      how.recompute = segments(most + 1);
      CHECK_THROWS_WITH(Ready(network, c, how),
                        Catch::Contains("at most " + std::to_string(most) + " segments"));
    }
  }
}

TEST_CASE("a fused program gives the same twice, by the same engines however it is cut",
          "[gpu][recompute]") {
  if (!gpu()) return;
  std::vector<nn::Network> networks = all_sketches();
  networks.push_back(nn::resnet(nn::usual_resnet("resnet20", 32, 10)));
  for (const nn::Network& network : networks) {
    const Case c(network, 2 * rows, 5);
    const How kept{.precision = Precision::fp16, .fused = true};
    How again = kept;
    again.recompute = segments(1);
    CHECK(engines_of(Ready(network, c, again)) == engines_of(Ready(network, c, kept)));
    for (const How& how : {kept, again}) {
      INFO(network.nodes.size() << " nodes, "
                                << (how.recompute.segments == kept.recompute.segments ? "kept"
                                                                                      : "again"));
      const Outcome first = trained(c, how, comparable_steps(how));
      for (int round = 0; round < 2; ++round)
        check_alike(first, trained(c, how, comparable_steps(how)), Nearness(network), how);
    }
  }
}

TEST_CASE(
    "a small ResNet-20 on a GPU gives the same bits with less memory when values are made again",
    "[gpu][recompute]") {
  if (!gpu()) return;
  const Case c(nn::resnet(nn::usual_resnet("resnet20", 8, 10)), 2 * rows, 5);
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const Outcome kept = trained(c, {.precision = precision}, 1);
    const Outcome again = trained(c, {.precision = precision, .recompute = segments(4)}, 1);
    INFO(to_string(precision));
    check_same(kept, again);
    CHECK(again.memory.activations < 0.6 * static_cast<double>(kept.memory.activations));
    CHECK(again.memory.made_again > 0.3);
  }
}

TEST_CASE("a memory limit is kept on a GPU; the smallest possible one is named, and is possible",
          "[gpu][recompute]") {
  if (!gpu()) return;
  const Case c(nn::resnet(nn::usual_resnet("resnet20", 32, 10)), rows, 5);
  const auto within = [&](std::size_t limit) {
    return Ready(c.network, c,
                 {.recompute = {.mode = Recompute::Mode::automatic, .memory_limit = limit}})
        .program->memory();
  };
  std::size_t least = 0;
  try {
    within(1);
  } catch (const InputError& error) {
    const std::string said = error.what();
    INFO(said);
    CHECK(said.find("memory-limit = 1 is too small") == 0);
    const std::size_t at = said.find("at least ");
    REQUIRE(at != std::string::npos);
    least = std::stoull(said.substr(at + 9));
  }
  REQUIRE(least > 0);
  CHECK_THROWS_WITH(within(0), Catch::Contains("recompute = auto needs memory-limit"));
  CHECK_THROWS_WITH(within(least - 1), Catch::Contains("at least " + std::to_string(least)));
  const MemoryPlan kept = Ready(c.network, c, {}).program->memory();
  const MemoryPlan tightest = within(least);
  const std::size_t fixed = least - tightest.activations;
  double before = 1;
  for (const std::size_t part : {0u, 1u, 4u, 10u}) {
    const std::size_t limit = least + (kept.activations - tightest.activations) * part / 10;
    const MemoryPlan plan = within(limit);
    CHECK(fixed + plan.activations <= limit);
    CHECK(plan.made_again <= before);
    before = plan.made_again;
  }
  CHECK(before == 0);
}

namespace {

struct Pass {
  bool backward;
  std::size_t part;
};

/// What a program gives for micro-batches in this order.
struct Flown {
  double loss = 0;
  std::vector<std::vector<float>> logits;
  Tensors gradients;
  std::size_t bytes = 0;
};

Flown fly(const Case& c, const How& how, const std::vector<Pass>& schedule) {
  Ready compiled(c.network, c, how);
  Program& program = *compiled.program;
  Flown flown;
  bool accumulate = false;
  for (const Pass& pass : schedule) {
    program.select(pass.part % how.slots);
    if (!pass.backward) {
      // Each part has another share of the step's rows.
      program.set_scalars({.lr = 0,
                           .gradient_scale = 1.f / static_cast<float>(2 + pass.part),
                           .statistics_share = 0.5f / static_cast<float>(1 + pass.part)});
      compiled.load(c, pass.part);
      compiled.run(program.forward());
      flown.logits.emplace_back(rows * c.network.classes);
      program.copy_logits(flown.logits.back());
      continue;
    }
    compiled.run(program.backward(accumulate));
    accumulate = true;
  }
  flown.loss = program.take_metrics().loss;
  flown.gradients = compiled.gradients();
  flown.bytes = program.memory().activations;
  return flown;
}

/// The same bits, or near numbers where they do not repeat.
void check_alike(const Flown& alone, const Flown& together, const Nearness& near, const How& how) {
  if (repeats(how)) {
    CHECK(together.gradients == alone.gradients);
    CHECK(together.logits == alone.logits);
    CHECK(together.loss == alone.loss);
    return;
  }
  CHECK(distance(together.gradients, alone.gradients) <= near.gradient);
  const std::vector<double> logits = joined(together.logits);
  CHECK(test::distance({logits.begin(), logits.end()}, joined(alone.logits)) <= near.logits);
  CHECK(std::abs(together.loss / alone.loss - 1) <= near.loss);
}

}  // namespace

TEST_CASE("micro-batches in flight on a GPU give the gradients of one after the other",
          "[gpu][slots]") {
  if (!gpu()) return;
  for (const nn::Network& network : all_sketches()) {
    const Case c(network, 3 * rows, 5);
    for (How how : {How{},
                    {.precision = Precision::fp16, .recompute = segments(2)},
                    {.precision = Precision::fp16, .fused = true, .recompute = segments(2)}}) {
      const Flown alone =
          fly(c, how, {{false, 0}, {true, 0}, {false, 1}, {true, 1}, {false, 2}, {true, 2}});
      how.slots = 3;
      const Flown together =
          fly(c, how, {{false, 0}, {false, 1}, {true, 0}, {false, 2}, {true, 1}, {true, 2}});
      INFO(network.nodes.size() << " nodes in " << to_string(how.precision)
                                << (how.fused ? ", fused" : ""));
      check_alike(alone, together, Nearness(network), how);
      CHECK(together.bytes > alone.bytes);
      CHECK(together.bytes <= 4 * alone.bytes);  // what all share, and what each slot keeps
    }
  }
  const Case c(plain(), rows, 5);
  CHECK_THROWS_WITH(Ready(c.network, c, {.slots = 2}).program->select(2),
                    Catch::Contains("2 slots has no slot 2"));
}

namespace {

cudaStream_t stream_of(const Ready& compiled) {
  return dynamic_cast<cuda::CudaDevice&>(compiled.backend->device()).compute().get();
}

void carry(Ready& from, std::span<std::byte> what, Ready& to, std::span<std::byte> where) {
  REQUIRE(what.size() == where.size());
  REQUIRE_FALSE(what.empty());
  from.backend->device().compute().synchronize();
  cuda::check_cuda(cudaMemcpyAsync(where.data(), what.data(), what.size(), cudaMemcpyDeviceToDevice,
                                   stream_of(to)),
                   "cudaMemcpyAsync");
}

/// Two micro-batches through the stages of these networks.
std::pair<double, Tensors> through(const std::vector<nn::Network>& networks, const Case& c,
                                   const How& how) {
  std::vector<Ready> stages;
  for (const nn::Network& network : networks) stages.emplace_back(network, c, how);
  return test::through(stages, c, rows, carry);
}

}  // namespace

TEST_CASE("stages on a GPU give the loss and the gradients of the whole network, bit for bit",
          "[gpu][stages]") {
  if (!gpu()) return;
  for (const nn::Network& network : all_sketches()) {
    const Case c(network, 2 * rows, 3);
    const std::vector<cuda::Unit> units = cuda::lower(network);
    std::vector<std::size_t> cuts;
    for (const std::size_t unit :
         cuda::cut_units(network, units, std::vector<bool>(units.size(), false)))
      cuts.push_back(units[unit].value);
    REQUIRE_FALSE(cuts.empty());
    for (const Precision precision : {Precision::fp32, Precision::fp16}) {
      How how{.precision = precision, .slots = 2};
      const auto whole = through({network}, c, how);
      for (const std::size_t cut : cuts) {
        INFO("after " << network.nodes[cut].name << " in " << to_string(precision));
        const auto parts = through(nn::split(network, {cut}), c, how);
        CHECK(parts.first == whole.first);
        CHECK(parts.second == whole.second);
      }
      how.recompute = segments(1);  // each stage is cut into the one span that it always has
      CHECK(through(nn::split(network, cuts), c, how) == whole);
    }
  }
}

TEST_CASE("a stage that ends inside a block's arithmetic is an error that names the node",
          "[gpu][stages]") {
  if (!gpu()) return;
  const nn::Network network = plain();
  const std::vector<nn::Network> stages = nn::split(network, {1});  // after the convolution
  CHECK_THROWS_WITH(cuda::lower(stages[0]), Catch::Contains("send: ") || Catch::Contains("c1: "));
  CHECK_THROWS_WITH(cuda::lower(stages[1]), Catch::Contains("in the same stage"));
}

TEST_CASE("whole networks on a GPU give the same bits whatever is made again, every precision",
          "[gpu][recompute][whole]") {
  if (!gpu()) return;
  struct Whole {
    const char* model;
    std::size_t side, parts;
  };
  for (const Whole& whole : {Whole{"resnet20", 32, 5}, Whole{"resnet50", 64, 6}}) {
    const Case c(nn::resnet(nn::usual_resnet(whole.model, whole.side, 10)), 2 * rows, 5);
    for (const auto& [precision, fused] : {std::pair{Precision::fp32, false},
                                           {Precision::tf32, false},
                                           {Precision::bf16, false},
                                           {Precision::fp16, false},
                                           {Precision::fp16, true}}) {
      INFO(whole.model << " in " << to_string(precision) << (fused ? ", fused" : ""));
      How how{.precision = precision, .fused = fused};
      // Three steps of three rows make any difference large: only bits can be compared.
      if (!repeats(how)) continue;
      const Outcome kept = trained(c, how, 3);
      how.recompute = segments(whole.parts);
      const Outcome again = trained(c, how, 3);
      check_same(kept, again);
      CHECK(again.memory.activations < kept.memory.activations);
    }
  }
}
