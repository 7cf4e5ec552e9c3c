#pragma once

#include <cmath>

/// Batch norm's formulae (Ioffe and Szegedy 2015; the running variance is unbiased, as PyTorch's).
/// constexpr, for host and device code alike. The CPU's vector kernels (cpu/kernels.inc) implement
/// them a second time, for many values at a time.
namespace lockstep::backend::arithmetic {

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

/// Of `count` values: their mean, and the sum of their squared distances from it.
struct SampleMoments {
  double count = 0, mean = 0, squares = 0;
  constexpr double variance() const { return squares / count; }
};
/// Of two sets of values together: Chan, Golub and LeVeque 1979. Unlike sums of x and x^2, it does
/// not subtract large numbers that are nearly equal.
constexpr SampleMoments merged(const SampleMoments& a, const SampleMoments& b) {
  const double count = a.count + b.count;
  if (!(count > 0)) return {};
  const double distance = b.mean - a.mean, share = b.count / count;
  return {count, a.mean + distance * share,
          a.squares + b.squares + distance * distance * a.count * share};
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

/// The step's end. kept: (1 - momentum)^micro-batches; fresh: the (reduced) statistics of the step.
constexpr float running_statistic(float kept, float running, float fresh) {
  return kept * running + fresh;
}

}  // namespace lockstep::backend::arithmetic
