#include "lockstep/base/statistics.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

double in_order(std::vector<double>& values, std::size_t index) {
  if (values.empty()) return 0;
  const auto wanted = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), wanted, values.end());
  return *wanted;
}

}  // namespace

double lower_median(std::vector<double> values) {
  return in_order(values, values.empty() ? 0 : (values.size() - 1) / 2);
}

double upper_median(std::vector<double> values) { return in_order(values, values.size() / 2); }

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double robust_spread(std::vector<double> values, double centre) {
  for (double& value : values) value = std::abs(value - centre);
  return 1.4826 * upper_median(std::move(values));
}

double expected_largest(double ranks) {
  if (ranks < 2) return 0;
  // Blom (1958): the normal quantile at (P - 0.375) / (P + 0.25), here for its upper tail by the
  // rational approximation of Abramowitz and Stegun 26.2.23, within 5e-4.
  const double tail = 0.625 / (ranks + 0.25);
  const double t = std::sqrt(-2 * std::log(tail));
  return t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                 (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

bool all_finite(std::span<const float> values) {
  // Infinities and NaN have the largest exponent: one more carries into the sign's bit. A loop that
  // always goes to the end is computed in vectors.
  std::uint32_t any = 0;
  for (const float value : values)
    any |= (std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFF) + 0x00800000;
  return any >> 31 == 0;
}

}  // namespace lockstep
