#include "lockstep/study/fit/interval.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "lockstep/base/error.hpp"
#include "lockstep/base/statistics.hpp"
#include "study/fit/regression.hpp"

namespace lockstep::study {
namespace {

/// The mean of the middle two for an even number: pairs come in both orders, A B and B A.
double middle_of(const std::vector<double>& values) {
  return (lower_median(values) + upper_median(values)) / 2;
}

}  // namespace

std::string Interval::text() const {
  return fmt::format("{:.2f} ({:.2f} to {:.2f})", middle, low, high);
}

Interval span_of(const std::vector<double>& values, double middle) {
  const auto [least, most] = std::ranges::minmax(values);
  return {least, middle, most};
}

Interval interval(std::vector<double> values, double confidence) {
  check(!values.empty(), "an interval of no values");
  std::ranges::sort(values);
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const std::size_t below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  return {at((1 - confidence) / 2), at(0.5), at((1 + confidence) / 2)};
}

Interval interval_around(double middle, std::vector<double> values, double confidence) {
  if (values.empty()) return exactly(middle);
  const Interval spread = interval(std::move(values), confidence);
  return {std::min(spread.low, middle), middle, std::max(spread.high, middle)};
}

Interval estimate_difference(const std::vector<double>& differences) {
  constexpr std::uint64_t resamples = 1000;
  check(!differences.empty(), "an estimate without a difference");
  std::vector<double> medians, drawn(differences.size());
  for (std::uint64_t sample = 0; sample < resamples; ++sample) {
    const Draws draws(1, sample);
    for (std::size_t i = 0; i < drawn.size(); ++i)
      drawn[i] = differences[draws.below(i, differences.size())];
    medians.push_back(middle_of(drawn));
  }
  std::ranges::sort(medians);
  return {medians[resamples / 40], middle_of(differences), medians[resamples - 1 - resamples / 40]};
}

bool is_precise(const Interval& estimate, double step_ms) {
  return estimate.high - estimate.low <= 0.02 * step_ms;
}

std::vector<double> ratios_of(const std::vector<double>& values,
                              const std::vector<double>& others) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < values.size(); ++i) ratios.push_back(values[i] / others[i]);
  return ratios;
}

}  // namespace lockstep::study
