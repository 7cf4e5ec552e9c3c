#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/error.hpp"

namespace lockstep::train {

/// Training has left the numbers: all ranks find it in the same step.
class Divergence : public InputError {
 public:
  using InputError::InputError;
};

/// Throws Divergence when `condition` does not hold.
inline void require_converging(bool condition, std::string_view what) {
  if (!condition) throw Divergence(std::string(what));
}

}  // namespace lockstep::train
