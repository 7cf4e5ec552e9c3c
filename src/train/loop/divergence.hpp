#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include "lockstep/base/error.hpp"

namespace lockstep::train {

/// Training has left the numbers: all ranks find it in the same step.
class Divergence : public Error {
 public:
  explicit Divergence(const std::string& what) : Error(what, Ending::diverged) {}
};

/// Throws Divergence when `condition` does not hold.
inline void require_converging(bool condition, std::string_view what) {
  if (!condition) throw Divergence(std::string(what));
}

/// What a loss is that is not finite.
inline const char* strange_loss(double loss) {
  return std::isnan(loss) ? "not a number" : "infinite";
}

}  // namespace lockstep::train
