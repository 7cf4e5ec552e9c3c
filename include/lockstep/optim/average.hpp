#pragma once

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

}  // namespace lockstep::optim
