#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

using Extents = std::vector<unsigned long long>;  ///< as HDF5 counts: one number a dimension

/// A part of an array: [begin, end) in each dimension.
struct Box {
  Extents begin, end;
};

/// Rows (places along the first dimension) of an array of which a part lies in no box.
struct Uncovered {
  std::uint64_t rows = 0, first = 0;
};

/// Boxes may overlap, and reach beyond the array.
Uncovered uncovered_rows(const std::vector<Box>& boxes, const Extents& shape);

/// The sum of the boxes' volumes.
std::uint64_t volume(const std::vector<Box>& boxes);

}  // namespace lockstep::data
