#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/files/h5.hpp"

namespace lockstep::data {

/// A file that holds rows [first, last] of a data set of another file.
struct SourceFile {
  std::filesystem::path path;
  hsize_t first = 0, last = 0;
};

/// The other files that a data set's rows lie in. HDF5 can open those of a virtual data set as long
/// as `open` holds them. The caller of the destructor holds an h5::Session.
struct Sources {
  std::vector<SourceFile> files;
  std::vector<h5::File> open;
};

/// Requires that all values of an open data set were written and can be read. HDF5 itself gives
/// fill values, without a word, for chunks or space that was never written, for rows of a virtual
/// data set without a source, for a source file that is missing or cannot be opened, for one
/// without the data set, and for what an external raw file is too short for. Sources of a virtual
/// data set are asked the same. (What cannot be seen: rows that were never written in chunks or
/// space that was.) Throws InputError naming the file and the data set. The caller holds an
/// h5::Session.
Sources require_whole(const std::filesystem::path& path, hid_t data);

using Extents = std::vector<hsize_t>;  ///< as HDF5 counts: one number a dimension

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
