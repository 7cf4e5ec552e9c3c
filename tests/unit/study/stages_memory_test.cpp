// What stages take of a rank's memory, by the CPU backend's own plan, which allocates nothing.
#include <catch2/catch.hpp>

#include "lockstep/backend/backend.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/train/pipeline/schedule.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using train::PipelineOrder;
using Mode = Recompute::Mode;

namespace {

constexpr std::size_t micro_batches = 8, rows = 4;

/// ResNet-50 at 224 pixels, in stages of equal work.
struct Cut {
  explicit Cut(std::size_t stages) : parts(nn::split(whole, nn::balanced_cuts(whole, stages))) {}
  nn::Network whole = nn::resnet(nn::usual_resnet("resnet50", 224, 1000));
  std::vector<nn::Network> parts;
  std::unique_ptr<Backend> backend = make_cpu_backend({});

  PlannedMemory of(PipelineOrder order, std::size_t stage, Mode again = Mode::none,
                   std::optional<std::size_t> slots = std::nullopt) const {
    const train::PipelineShape shape{parts.size(), micro_batches};
    ProgramSpec spec;
    spec.batch = rows;
    spec.lanes = 1;
    spec.mean = spec.stddev = {0.5f, 0.5f, 0.5f};
    spec.slots = slots.value_or(train::slots_of_stage(order, stage, shape));
    spec.weights_later = train::late_in_stage(order, stage, shape);
    spec.whole = parts.size() > 1 ? &whole : nullptr;
    spec.recompute.mode = again;
    return backend->plan(parts[stage], spec);
  }
  /// Of the rank that takes most.
  std::size_t largest(PipelineOrder order, Mode again = Mode::none) const {
    std::size_t most = 0;
    for (std::size_t s = 0; s < parts.size(); ++s) {
      const MemoryPlan plan = of(order, s, again).program;
      most = std::max(most, plan.activations + plan.workspace);
    }
    return most;
  }
};

}  // namespace

TEST_CASE("a rank has the parameters of its stage and of no other", "[stages][memory]") {
  const Cut one(1);
  const double all = static_cast<double>(one.of(PipelineOrder::one_f_one_b, 0).parameters);
  for (const std::size_t n : {2, 4}) {
    const Cut cut(n);
    double sum = 0;
    for (std::size_t s = 0; s < n; ++s) {
      const auto own = static_cast<double>(cut.of(PipelineOrder::one_f_one_b, s).parameters);
      CHECK(own == Approx(12.0 * static_cast<double>(nn::numbers(cut.parts[s]))).epsilon(0.01));
      sum += own;
    }
    CHECK(sum == Approx(all).epsilon(0.01));
  }
}

TEST_CASE("each micro-batch in flight takes as much again, and its part of the boundaries",
          "[stages][memory]") {
  const Cut cut(4);
  for (std::size_t s = 0; s < 4; ++s) {
    const auto bytes = [&](std::size_t slots) {
      return static_cast<double>(
          cut.of(PipelineOrder::one_f_one_b, s, Mode::none, slots).program.activations);
    };
    const double each = bytes(3) - bytes(2);
    CHECK(each > 0);
    CHECK(bytes(8) == Approx(bytes(2) + 6 * each).epsilon(0.03));
    const auto other = [&](std::size_t slots) {
      return cut.of(PipelineOrder::one_f_one_b, s, Mode::none, slots).program.workspace;
    };
    std::size_t boundaries = 0;
    for (const nn::Node& node : cut.parts[s].nodes) {
      const std::size_t value = rows * node.shape.count() * sizeof(float);
      if (node.op == nn::Op::send) boundaries += value * (1 + node.gradients);
      if (node.op == nn::Op::receive)
        boundaries += value * (1 + nn::readers(cut.parts[s])[0].size());
    }
    CHECK(other(3) - other(2) == boundaries);
  }
}

TEST_CASE("weight gradients apart take no more of the largest rank's memory than 1f1b",
          "[stages][memory]") {
  for (const std::size_t n : {2, 4}) {
    const Cut cut(n);
    CHECK(static_cast<double>(cut.largest(PipelineOrder::zb_h1)) <=
          1.03 * static_cast<double>(cut.largest(PipelineOrder::one_f_one_b)));
  }
}

// A stage's last segment is kept in each slot: only where backward follows forward at once, as on
// one rank, does that cost nothing.
TEST_CASE("stages take more than one rank, with values made again and without",
          "[stages][memory]") {
  const Cut one(1);
  const std::size_t kept = one.largest(PipelineOrder::one_f_one_b),
                    again = one.largest(PipelineOrder::one_f_one_b, Mode::least);
  CHECK(again < kept);
  for (const std::size_t n : {2, 4}) {
    const Cut cut(n);
    const std::size_t stages = cut.largest(PipelineOrder::one_f_one_b),
                      made_again = cut.largest(PipelineOrder::one_f_one_b, Mode::least);
    CHECK(stages > kept);
    CHECK(made_again < stages);
    CHECK(again < made_again);
  }
}
