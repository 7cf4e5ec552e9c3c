#pragma once

#include "lockstep/base/text/choices.hpp"

namespace lockstep::optim {

/// Where LARS has the learning rate and the trust ratio: in the velocity, or outside. With a
/// constant rate and trust ratio all three are the same. With g including weight decay:
///   inside     v = momentum * v + lr * trust * g; w -= v: MLPerf's reference in TensorFlow. Small
///              steps of a warm-up live on in it.
///   corrected  v = momentum * lr / (last lr) * v + lr * trust * g; w -= v: SGDwFASTLARSV2 of
///              NVIDIA (Goyal et al. 2017). It is computed as v = momentum * v + trust * g; w -= lr
///              * v, which needs no rate before. Slices that are not adaptive are as `inside`.
///   outside    v = momentum * v + g; w -= lr * trust * v: Intel's, in PyTorch.
enum class LarsMomentum { inside, corrected, outside };

/// Layer-wise adaptive rate scaling for large batches (You, Gitman, Ginsburg 2017): by default
/// v = momentum * v + lr * trust * g and w -= v or, with Nesterov,
/// w -= momentum * v + lr * trust * g, where g includes weight decay. A slice's trust ratio is
/// coefficient * |w| / (|g| + decay * |w| + epsilon), with the norms of the whole slice and g
/// without decay; 1 if one of the norms is 0, and for slices that are not adaptive.
struct Lars {
  float momentum = 0.9f;
  bool nesterov = false;
  float coefficient = 0.001f;
  float epsilon = 0;
  LarsMomentum form = LarsMomentum::inside;
};

}  // namespace lockstep::optim

template <>
struct lockstep::Choices<lockstep::optim::LarsMomentum> {
  using enum lockstep::optim::LarsMomentum;
  static constexpr Choice<lockstep::optim::LarsMomentum> all[] = {
      {inside, "inside"}, {corrected, "corrected"}, {outside, "outside"}};
};
