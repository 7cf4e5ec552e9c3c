#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/half.hpp"

/// The element-wise arithmetic of a training step, but for the update's, which is in optim.
/// Everything is constexpr and so callable in host and device code alike (nvcc:
/// --expt-relaxed-constexpr): what the tests show about a formula here holds for the GPU's kernels
/// too. The CPU's vector kernels (cpu/kernels.inc) implement batch norm and the update a second
/// time, for many values at a time.
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

/// The step's end. kept: (1 - momentum)^micro-batches; fresh: the (reduced) statistics of the step.
constexpr float running_statistic(float kept, float running, float fresh) {
  return kept * running + fresh;
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

}  // namespace lockstep::backend::arithmetic
