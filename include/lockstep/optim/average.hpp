#pragma once

// Why the average includes running statistics. Averaged weights give other values than the newest
// ones, so the newest statistics do not fit them. Averaging both over the same steps is what
// torchvision's and timm's recipes do. It costs no pass over the data, as recomputing them would.
//
// Why the average changes places with the weights. Its validation runs in the same programs and
// needs no memory. Exchanging twice restores all bits.

#include <algorithm>
#include <cstdint>

namespace lockstep::optim {

/// An exponential moving average of the weights over the steps. decay: 0 to below 1; 0 keeps none.
struct AverageSpec {
  double decay = 0;
  bool kept() const { return decay > 0; }
};

/// The weights' share of the average after the step that follows `steps_done` others. The average
/// begins at the initial weights, and a young one must forget them soon, so its decay is at most
/// (1 + steps) / (10 + steps), as in TensorFlow's ExponentialMovingAverage. A function of the
/// position alone.
constexpr float average_share(const AverageSpec& spec, std::uint64_t steps_done) {
  const double steps = static_cast<double>(steps_done);
  return static_cast<float>(1 - std::min(spec.decay, (1 + steps) / (10 + steps)));
}

/// (1 - share) * average + share * weight, in the form that leaves equal values equal.
constexpr float averaged(float average, float weight, float share) {
  return average + share * (weight - average);
}

}  // namespace lockstep::optim
