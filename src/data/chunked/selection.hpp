#pragma once

#include <hdf5.h>

#include <string>
#include <vector>

#include "data/chunked/coverage.hpp"

namespace lockstep::data {

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
