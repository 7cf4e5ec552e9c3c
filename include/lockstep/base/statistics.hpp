#pragma once

#include <vector>

namespace lockstep {

/// The middle value. With an even number of values: the lower, or the upper, of the middle two. 0
/// when there are no values.
double lower_median(std::vector<double> values);
double upper_median(std::vector<double> values);

}  // namespace lockstep
