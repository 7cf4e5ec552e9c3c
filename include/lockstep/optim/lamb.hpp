#pragma once

#include <cmath>
#include <cstdint>

namespace lockstep::optim {

/// Layer-wise adaptive moments for large batches (You et al. 2020), in the form of timm and of
/// NVIDIA's FusedLAMB. At step t, from 1:
///   m = momentum * m + (1 - momentum) * g,  v = beta2 * v + (1 - beta2) * g * g
///   u = (m / (1 - momentum^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay * w
///   w -= lr * trust * u
/// A slice's trust ratio is |w| / |u|, with the norms of the whole slice; 1 if one of them is 0,
/// and for slices that are not adaptive. Weight decay is not in g. Steps that an overflow skipped
/// are not counted in t.
struct Lamb {
  float momentum = 0.9f;  ///< beta1 of the paper
  float beta2 = 0.999f;
  float epsilon = 1e-6f;
};

/// The first part of a slice's step.
struct LambRule {
  float beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  float scale1 = 1, scale2 = 1;  ///< 1 / (1 - beta^t): lamb_scale()
};
constexpr float lamb_scale(float beta, std::uint64_t t) {
  return static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta), static_cast<double>(t))));
}
/// Updates the moments and returns u, of which lr * trust is the weight's step.
constexpr float lamb(const LambRule& rule, float gradient, float weight, float& first,
                     float& second) {
  first = rule.beta1 * first + (1 - rule.beta1) * gradient;
  second = rule.beta2 * second + (1 - rule.beta2) * (gradient * gradient);
  const float size = std::sqrt(second * rule.scale2) + rule.epsilon;
  return first * rule.scale1 / size + rule.weight_decay * weight;
}
/// A slice's trust ratio.
constexpr float lamb_trust(double weight_norm, double step_norm) {
  if (!(weight_norm > 0 && step_norm > 0)) return 1;
  return static_cast<float>(weight_norm / step_norm);
}

}  // namespace lockstep::optim
