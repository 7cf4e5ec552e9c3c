#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <string>
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

Extents extents_of(hid_t space);  ///< empty for a single value
hsize_t values_of(const Extents& extents);

/// What is selected of an array of this shape.
struct Selected {
  std::vector<Box> boxes;  ///< not clipped, where the selection has an end
  bool all = false, endless = false, too_many = false;
};

/// The selection of `space` as boxes. What has no end there ends with the array.
Selected selected(hid_t space, const Extents& shape);

/// Cuts off what is beyond the array.
void clip(std::vector<Box>& boxes, const Extents& shape);

/// The name of one part of a series: "p%b.h5", as virtual data sets name their sources, for block 3
/// is "p3.h5".
std::string of_block(const std::string& name, hsize_t block);
bool is_series(const std::string& name);

}  // namespace lockstep::data
