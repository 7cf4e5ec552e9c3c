#include "study/simulate/pipeline.hpp"

#include <catch2/catch.hpp>

using namespace lockstep;
using namespace lockstep::study;
using enum train::PipelineOrder;

namespace {

constexpr StagePace even{.forward_ms = 1, .backward_ms = 2};

/// When the last stage has ended. A backward that leaves its weight gradients takes 1 ms, and they
/// take 1 ms.
double step_ms(train::PipelineOrder order, std::size_t stages, std::size_t micro_batches,
               const BoundaryCost& cost = {}) {
  PipelinePaces spec{.order = order,
                     .micro_batches = micro_batches,
                     .stages = {},
                     .boundaries = std::vector<BoundaryCost>(stages - 1, cost)};
  for (std::size_t s = 0; s < stages; ++s)
    spec.stages.push_back(
        train::late_in_stage(order, s, {stages, micro_batches}) > 0 ? StagePace{1, 1, 1} : even);
  double end = 0;
  for (const auto& stage : play_pipeline(spec)) end = std::max(end, stage.back().end_ms);
  return end;
}

}  // namespace

TEST_CASE("m micro-batches in n equal stages take m + n - 1 times one; with zb-h1 m + (n - 1) / 3",
          "[pipeline]") {
  for (const std::size_t n : {1, 2, 3, 4, 8})
    for (const std::size_t m : {n, 2 * n, 4 * n}) {
      INFO(n << " stages, " << m << " micro-batches");
      const auto bubble = static_cast<double>(n - 1), work = static_cast<double>(3 * m);
      CHECK(step_ms(one_f_one_b, n, m) == Approx(work + 3 * bubble));
      CHECK(step_ms(gpipe, n, m) == Approx(work + 3 * bubble));
      CHECK(step_ms(zb_h1, n, m) == Approx(work + bubble));
    }
}

TEST_CASE("a message is there when it has moved, and one alone is never hidden", "[pipeline]") {
  const BoundaryCost cost{.values = {2e-3, 3e-3}, .gradients = {4e-3, 1e-3}};
  CHECK(step_ms(one_f_one_b, 2, 1, cost) == Approx(1 + 5 + 3 + 5 + 2));
  // In a long step what a stage waits for was sent one micro-batch ago, but for the first and last.
  const BoundaryCost fast{.values = {1e-4, 0}, .gradients = {1e-4, 0}};
  CHECK(step_ms(one_f_one_b, 2, 8, fast) - step_ms(one_f_one_b, 2, 8) < 8 * 0.2 + 0.3);
}

TEST_CASE("a link that is slower than the stages is what a step takes", "[pipeline]") {
  const BoundaryCost slow{.values = {50e-3, 0}, .gradients = {1e-3, 0}};
  CHECK(step_ms(one_f_one_b, 2, 6, slow) >= 6 * 50);
  CHECK(step_ms(one_f_one_b, 2, 6, slow) <= 6 * 50 + 6 * 6);
}
