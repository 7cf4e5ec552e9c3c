#pragma once

#include "lockstep/base/text/choices.hpp"
#include "lockstep/optim/sgd.hpp"

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

/// A slice's trust ratio.
constexpr float trust_ratio(float coefficient, float epsilon, float weight_decay,
                            double weight_norm, double gradient_norm) {
  if (!(weight_norm > 0 && gradient_norm > 0)) return 1;
  return static_cast<float>(static_cast<double>(coefficient) * weight_norm /
                            (gradient_norm + static_cast<double>(weight_decay) * weight_norm +
                             static_cast<double>(epsilon)));
}
/// The factors of a slice's step, in the velocity (SgdRule::lr) and outside (SgdRule::outer), for
/// each form of LarsMomentum. trust: 1 for a slice that is not adaptive.
struct LarsFactors {
  float lr = 0, outer = 1;
};
constexpr LarsFactors lars_factors(LarsMomentum form, bool adaptive, float lr, float trust) {
  if (form == LarsMomentum::outside) return {1, adaptive ? lr * trust : lr};
  if (!adaptive) return {lr, 1};
  return form == LarsMomentum::inside ? LarsFactors{lr * trust, 1} : LarsFactors{trust, lr};
}
/// v = momentum * v + lr * (g + decay * w); w -= outer * v, or, with Nesterov,
/// w -= outer * (momentum * v + lr * (g + decay * w)).
constexpr void lars(const SgdRule& rule, float gradient, float& weight, float& velocity) {
  const float step = rule.lr * (gradient + rule.weight_decay * weight);
  velocity = rule.momentum * velocity + step;
  weight -= rule.outer * (rule.nesterov ? rule.momentum * velocity + step : velocity);
}

}  // namespace lockstep::optim

template <>
struct lockstep::Choices<lockstep::optim::LarsMomentum> {
  using enum lockstep::optim::LarsMomentum;
  static constexpr Choice<lockstep::optim::LarsMomentum> all[] = {
      {inside, "inside"}, {corrected, "corrected"}, {outside, "outside"}};
};
