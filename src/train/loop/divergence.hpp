#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include "lockstep/base/error.hpp"

namespace lockstep::train {

/// Throws Error when `condition` does not hold: training has left the numbers. All ranks find it in
/// the same step.
inline void require_converging(bool condition, std::string_view what) {
  if (!condition) throw Error(std::string(what), Ending::diverged);
}

/// What a loss is that is not finite.
inline const char* strange_loss(double loss) {
  return std::isnan(loss) ? "not a number" : "infinite";
}

}  // namespace lockstep::train
