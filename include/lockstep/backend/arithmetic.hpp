#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/half.hpp"
#include "lockstep/optim/lars.hpp"

/// The element-wise arithmetic of a training step. Everything is constexpr and so callable in host
/// and device code alike (nvcc: --expt-relaxed-constexpr): what the tests show about a formula here
/// holds for the GPU's kernels too. The CPU's vector kernels (cpu/kernels.inc) implement batch norm
/// and the update a second time, for many values at a time.
namespace lockstep::backend::arithmetic {

/// Of a vector that Gram-Schmidt's method has made shorter than this share of what it was, little
/// but rounding is left.
constexpr double dependent_share = 1e-5;
/// Number i of the vector, in [-1, 1), that takes the place of a dependent vector `which`.
constexpr float stand_in(std::size_t which, std::size_t i) {
  std::uint32_t bits = static_cast<std::uint32_t>(i * 8 + which + 1) * 0x9E3779B1u;
  bits = (bits ^ bits >> 15) * 0x85EBCA77u;
  bits = (bits ^ bits >> 13) * 0xC2B2AE3Du;
  return static_cast<float>((bits ^ bits >> 16) >> 8) * 0x1p-23f - 1;
}

/// A pixel's value v (0 to 255) becomes v * scale + shift = (v / 255 - mean) / deviation.
struct PixelScale {
  float scale = 1, shift = 0;
};
constexpr PixelScale pixel_scale(double mean, double deviation) {
  return {static_cast<float>(1 / (255 * deviation)), static_cast<float>(-mean / deviation)};
}
constexpr float normalised(std::uint8_t pixel, PixelScale by) {
  return static_cast<float>(pixel) * by.scale + by.shift;
}

// ---- batch norm: Ioffe and Szegedy 2015; running variance is unbiased, as PyTorch's ------------

/// What one channel needs in forward: y = x * scale + shift.
struct NormChannel {
  float mean, inverse_deviation, scale, shift;
};
constexpr NormChannel norm_channel(double mean, double variance, float gamma, float beta,
                                   float epsilon) {
  NormChannel c{};
  c.mean = static_cast<float>(mean);
  c.inverse_deviation = static_cast<float>(1 / std::sqrt(variance + static_cast<double>(epsilon)));
  c.scale = gamma * c.inverse_deviation;
  c.shift = beta - c.mean * c.scale;
  return c;
}

/// Mean and variance from sums of (x - pivot) and (x - pivot)^2 over `count` values. Any pivot
/// works; one near the values loses no precision.
struct Moments {
  double mean, variance;
};
constexpr Moments moments(double sum, double sum_of_squares, double count, double pivot) {
  const double offset = sum / count, variance = sum_of_squares / count - offset * offset;
  return {pivot + offset, variance < 0 ? 0 : variance};
}

/// With g the gradient of the normalised output and x' = (x - mean) / deviation:
/// dx = gamma / deviation * (g - mean(g) - x' * mean(g * x')) = g * a + (x - mean) * b + c.
struct NormGradient {
  float a, b, c;
  float dgamma, dbeta;
};
/// sum_g, sum_gx: sums of g and of g * (x - mean) over the channel's `count` values.
constexpr NormGradient norm_gradient(double sum_g, double sum_gx, double count, float scale,
                                     float inverse_deviation) {
  const double s = scale, inverse = inverse_deviation;
  NormGradient n{};
  n.a = scale;
  n.b = static_cast<float>(-s * inverse * inverse * sum_gx / count);
  n.c = static_cast<float>(-s * sum_g / count);
  n.dgamma = static_cast<float>(sum_gx * inverse);
  n.dbeta = static_cast<float>(sum_g);
  return n;
}

constexpr double unbiased(double variance, double count) {
  return variance * count / (count > 2 ? count - 1 : 1.0);
}

/// What one micro-batch adds to a rank's share of the running statistics. share: the rank's rows /
/// rows of all ranks. An earlier micro-batch of the same step fades by 1 - momentum, as if the
/// micro-batches had come one after the other.
constexpr float kept_statistic(bool accumulate, float before, float share, float momentum,
                               double fresh) {
  const double added = static_cast<double>(share) * static_cast<double>(momentum) * fresh;
  const double faded = (1 - static_cast<double>(momentum)) * static_cast<double>(before);
  return static_cast<float>(accumulate ? faded + added : added);
}

// ---- cross entropy against (1 - smoothing) * (mix at a, 1 - mix at b) + smoothing / classes -----

/// The target distribution of one row.
struct Wanted {
  std::int32_t a, b;
  double mix, sharp, even;
  constexpr double of(std::int32_t label) const {
    return even + sharp * ((label == a ? mix : 0) + (label == b ? 1 - mix : 0));
  }
};
constexpr Wanted wanted(std::int32_t a, std::int32_t b, float mix, float smoothing,
                        std::size_t classes) {
  const double s = smoothing;
  return {a, b, mix, 1 - s, s / static_cast<double>(classes)};
}
/// log_sum: log of the sum of exp(logit). sum: the sum of all logits.
constexpr double cross_entropy(const Wanted& w, double log_sum, double logit_a, double logit_b,
                               double sum) {
  return log_sum - w.sharp * (w.mix * logit_a + (1 - w.mix) * logit_b) - w.even * sum;
}
/// d loss / d logit, times `scale`.
constexpr float logit_gradient(const Wanted& w, std::int32_t label, double logit, double log_sum,
                               double scale) {
  return static_cast<float>(scale * (std::exp(logit - log_sum) - w.of(label)));
}
/// Whether class k ranks above `label`; on equal logits the lower index does. A NaN never counts in
/// favour of the label.
constexpr bool outranks(std::int32_t k, float logit_k, std::int32_t label, float logit_label) {
  const bool label_wins = logit_label > logit_k || (logit_label == logit_k && label < k);
  return k != label && !label_wins;
}

// ---- the update ---------------------------------------------------------------------------------

struct SgdRule {
  float lr = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;
  float outer = 1;  ///< LARS: multiplies the velocity in the weight's step
};
/// Sutskever et al. 2013 in PyTorch's form: v = momentum * v + (g + decay * w); w -= lr * v, or,
/// with Nesterov, w -= lr * (g + decay * w + momentum * v).
constexpr void sgd(const SgdRule& rule, float gradient, float& weight, float& velocity) {
  const float g = gradient + rule.weight_decay * weight;
  velocity = rule.momentum * velocity + g;
  weight -= rule.lr * (rule.nesterov ? g + rule.momentum * velocity : velocity);
}

/// LARS's trust ratio of a slice (optim/lars.hpp).
constexpr float trust_ratio(float coefficient, float epsilon, float weight_decay,
                            double weight_norm, double gradient_norm) {
  if (!(weight_norm > 0 && gradient_norm > 0)) return 1;
  return static_cast<float>(static_cast<double>(coefficient) * weight_norm /
                            (gradient_norm + static_cast<double>(weight_decay) * weight_norm +
                             static_cast<double>(epsilon)));
}
/// The factors of a slice's step, in the velocity (SgdRule::lr) and outside (SgdRule::outer), for
/// each form of optim::LarsMomentum. trust: 1 for a slice that is not adaptive.
struct LarsFactors {
  float lr = 0, outer = 1;
};
constexpr LarsFactors lars_factors(optim::LarsMomentum form, bool adaptive, float lr, float trust) {
  if (form == optim::LarsMomentum::outside) return {1, adaptive ? lr * trust : lr};
  if (!adaptive) return {lr, 1};
  return form == optim::LarsMomentum::inside ? LarsFactors{lr * trust, 1} : LarsFactors{trust, lr};
}
/// v = momentum * v + lr * (g + decay * w); w -= outer * v, or, with Nesterov,
/// w -= outer * (momentum * v + lr * (g + decay * w)).
constexpr void lars(const SgdRule& rule, float gradient, float& weight, float& velocity) {
  const float step = rule.lr * (gradient + rule.weight_decay * weight);
  velocity = rule.momentum * velocity + step;
  weight -= rule.outer * (rule.nesterov ? rule.momentum * velocity + step : velocity);
}

/// One slice's first part of a LAMB step (optim/lamb.hpp).
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
/// LAMB's trust ratio of a slice.
constexpr float lamb_trust(double weight_norm, double step_norm) {
  if (!(weight_norm > 0 && step_norm > 0)) return 1;
  return static_cast<float>(weight_norm / step_norm);
}

/// A filter's step by Muon (optim/muon.hpp): updates the velocity and returns the direction.
constexpr float muon_direction(float momentum, bool nesterov, float gradient, float& velocity) {
  velocity = momentum * velocity + gradient;
  return nesterov ? gradient + momentum * velocity : velocity;
}
/// By which the direction is multiplied before the first iteration.
constexpr float muon_begin(double direction_norm) {
  return static_cast<float>(1 / (direction_norm + 1e-7));
}
/// By which the weights are multiplied.
constexpr float muon_keep(std::size_t outputs, double weight_norm) {
  return weight_norm > 0 ? static_cast<float>(std::sqrt(static_cast<double>(outputs)) / weight_norm)
                         : 1;
}
/// The polynomial of an iteration.
struct Quintic {
  float a = 3.4445f, b = -4.7750f, c = 2.0315f;
};
/// Iterations are done on x x' alone, some at a time, and their product then multiplies x. More of
/// them together would lose the smaller singular values, which each one enlarges up to 3.4 times.
constexpr int muon_at_once(int iterations_left, bool first) {
  return std::min(iterations_left, first ? 2 : 3);
}

/// The factor that brings gradients of this norm down to `limit`; 1 if they are not above it
/// (Pascanu et al. 2013; PyTorch's clip_grad_norm_ and its 1e-6). A norm that is not a number gives
/// 1: the gradients then are not either, and stay so.
constexpr float clip_factor(double norm, float limit) {
  const double factor = static_cast<double>(limit) / (norm + 1e-6);
  return factor < 1 ? static_cast<float>(factor) : 1;
}

/// (1 - share) * average + share * weight, in the form that leaves equal values equal.
constexpr float averaged(float average, float weight, float share) {
  return average + share * (weight - average);
}

/// kept: (1 - momentum)^micro-batches; fresh: the (reduced) statistics of the step.
constexpr float running_statistic(float kept, float running, float fresh) {
  return kept * running + fresh;
}

/// fp16's gradients are multiplied by `scale`, so that small ones do not vanish, and divided by it
/// in the update. A step whose gradients overflow is skipped and halves the scale; after
/// growth_steps good steps the scale doubles (Micikevicius et al. 2018; PyTorch's numbers).
struct LossScale {
  float scale = 65536;
  std::uint32_t good_steps = 0;        ///< since the scale last changed
  std::uint32_t skipped_in_a_row = 0;  ///< steps skipped since the last good one
  std::uint64_t skipped = 0;           ///< since training began
  constexpr bool operator==(const LossScale&) const = default;
};
constexpr std::uint32_t growth_steps = 2000;
constexpr float largest_scale = 16777216;  // 2^24: gradients are already divided by the batch
constexpr LossScale after_step(LossScale s, bool overflow) {
  if (overflow) {
    s.scale = s.scale > 2 ? s.scale / 2 : 1;
    s.good_steps = 0;
    ++s.skipped_in_a_row;
    ++s.skipped;
    return s;
  }
  s.skipped_in_a_row = 0;
  if (++s.good_steps < growth_steps) return s;
  s.good_steps = 0;
  if (s.scale < largest_scale) s.scale *= 2;
  return s;
}

/// True for an infinity and for NaN.
constexpr bool overflowed(float value) {
  return !(value <= 3.402823466e+38f && value >= -3.402823466e+38f);
}

// ---- vectors: 16-bit floats are in base/half.hpp -----------------------------------------------

/// The bits of an absolute value: as integers they have the order of the values, and those of a NaN
/// are larger than all others.
constexpr std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffff;
}

/// Values of 8 bits that share one scale.
constexpr std::size_t scale_block = 256;
/// Of a block with this largest magnitude: that becomes 127. A block of tiny values becomes 0, and
/// one with an infinity or NaN becomes NaN.
constexpr float block_scale(float largest) {
  constexpr float least = 1e-30f;
  if (overflowed(largest)) return std::bit_cast<float>(0x7fc00000u);
  return largest < least ? 0 : largest / 127;
}
/// What to_i8() multiplies by.
constexpr float inverse_of(float scale) { return scale > 0 ? 1 / scale : 0; }
/// To the nearest integer, ties to even: this sum's last bit is worth 1.
constexpr std::int8_t to_i8(float value, float inverse) {
  const auto bits = std::bit_cast<std::uint32_t>(value * inverse + 12582912.f);  // 1.5 * 2^23
  return static_cast<std::int8_t>(bits);
}
constexpr float from_i8(std::int8_t value, float scale) {
  return static_cast<float>(value) * scale;
}
/// What select() leaves of a value.
constexpr float selected(float value, float bound) {
  const float size = value < 0 ? -value : value;
  return size > bound ? value : 0;
}

}  // namespace lockstep::backend::arithmetic
