#pragma once

#include <cstddef>

namespace lockstep::data {

/// Consecutive rows of a data set.
struct RowRange {
  std::size_t first = 0, rows = 0;
};

}  // namespace lockstep::data
