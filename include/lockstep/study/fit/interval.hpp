#pragma once

// Figures with what they may be off by, and arms that are measured in turn.

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::study {

/// A figure, and between which values it is.
struct Interval {
  double low = 0, middle = 0, high = 0;
  Interval operator-(double less) const { return {low - less, middle - less, high - less}; }
  std::string text() const;  ///< "20.00 (19.00 to 21.00)"
};

/// Of something counted.
constexpr Interval exactly(double value) { return {value, value, value}; }
/// From the least to the most of the values.
Interval span_of(const std::vector<double>& values, double middle);
/// The quantiles of a sample for intervals of this confidence. REQUIRES: not empty.
Interval interval(std::vector<double> values, double confidence);
/// The same around a figure that is known apart from them: without values, exactly that.
Interval interval_around(double middle, std::vector<double> values, double confidence);

/// The median of differences between blocks that were measured one after the other, with the 95 %
/// interval of a bootstrap (Efron 1979, percentiles). The draws are always the same. REQUIRES:
/// some.
Interval estimate_difference(const std::vector<double>& differences);
/// Whether more blocks would not tell more: the interval is under 2 % of a step.
bool is_precise(const Interval& estimate, double step_ms);

/// How many times `others` the values are, turn by turn.
std::vector<double> ratios_of(const std::vector<double>& values, const std::vector<double>& others);
/// Makes rounds while `more(rounds)` says so. In each, all arms have a turn; they take turns at
/// beginning (A B B A ...), so that what drifts affects all alike.
void take_turns(std::size_t arms, auto&& more, auto&& turn) {
  for (std::size_t round = 0; more(round); ++round)
    for (std::size_t i = 0; i < arms; ++i) turn(round % 2 == 0 ? i : arms - 1 - i);
}

}  // namespace lockstep::study
