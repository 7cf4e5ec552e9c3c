#pragma once

#include <hdf5.h>

#include <filesystem>
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

}  // namespace lockstep::data
