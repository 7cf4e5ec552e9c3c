#pragma once

#include <vector>

#include "lockstep/study/doctor/diagnosis.hpp"

namespace lockstep::study {

/// The median of differences between blocks that were measured one after the other, with the 95 %
/// interval of a bootstrap (Efron 1979, percentiles). The draws are always the same. REQUIRES:
/// some.
Estimate estimate_difference(const std::vector<double>& differences);

/// Whether more blocks would not tell more: the interval is under 2 % of a step.
bool is_precise(const Estimate& estimate, double step_ms);

/// Moves an estimate of what two measurements share: ms, low and high times `factor`.
Estimate scaled(const Estimate& estimate, double factor);

}  // namespace lockstep::study
