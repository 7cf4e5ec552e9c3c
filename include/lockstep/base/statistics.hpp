#pragma once

#include <span>
#include <vector>

namespace lockstep {

/// The middle value. With an even number of values: the lower, or the upper, of the middle two. 0
/// when there are no values.
double lower_median(std::vector<double> values);
double upper_median(std::vector<double> values);

double mean(const std::vector<double>& values);  ///< REQUIRES: one at least

/// How far values lie from `centre`: the median distance, scaled so that it estimates the standard
/// deviation of a normal distribution. Outliers hardly change it.
double robust_spread(std::vector<double> values, double centre);

/// How much later the slowest of `ranks` is than the mean one, in deviations of a rank's time, if
/// these are normal: the expected largest of as many draws. 0 for one. Pure.
double expected_largest(double ranks);

bool all_finite(std::span<const float> values);

}  // namespace lockstep
