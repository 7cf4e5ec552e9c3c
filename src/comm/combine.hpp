#pragma once

#include <cstddef>

#include "lockstep/comm/elements.hpp"

namespace lockstep::comm {

/// How a rank of the host combines another's part with its own. The two must not overlap.
struct Combine {
  /// For sums of 16 bits, which add in float and round once: writes `count` floats to `total`.
  /// Null when `combine` works in the elements themselves.
  void (*widen)(float* total, const void* mine, std::size_t count);
  /// total[i] = total[i] + part[i], or the larger of them. `total` holds floats when widened.
  void (*combine)(void* total, const void* part, std::size_t count);
  void (*round)(void* mine, const float* total, std::size_t count);  ///< undoes `widen`; else null
};

Combine combine_of(ElementType type, Reduction reduction);

}  // namespace lockstep::comm
