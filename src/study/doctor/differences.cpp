#include "study/doctor/differences.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/statistics.hpp"
#include "study/fit/draws.hpp"

namespace lockstep::study {
namespace {

/// The mean of the middle two for an even number: pairs come in both orders, A B and B A.
double middle(const std::vector<double>& values) {
  return (lower_median(values) + upper_median(values)) / 2;
}

}  // namespace

Estimate estimate_difference(const std::vector<double>& differences) {
  constexpr std::uint64_t resamples = 1000;
  check(!differences.empty(), "an estimate without a difference");
  std::vector<double> medians, drawn(differences.size());
  for (std::uint64_t sample = 0; sample < resamples; ++sample) {
    const Draws draws(1, sample);
    for (std::size_t i = 0; i < drawn.size(); ++i)
      drawn[i] = differences[draws.below(i, differences.size())];
    medians.push_back(middle(drawn));
  }
  std::sort(medians.begin(), medians.end());
  return {middle(differences), medians[resamples / 40], medians[resamples - 1 - resamples / 40]};
}

bool is_precise(const Estimate& estimate, double step_ms) {
  return estimate.high - estimate.low <= 0.02 * step_ms;
}

Estimate scaled(const Estimate& estimate, double factor) {
  Estimate result{factor * estimate.ms, factor * estimate.low, factor * estimate.high};
  if (factor < 0) std::swap(result.low, result.high);
  return result;
}

}  // namespace lockstep::study
