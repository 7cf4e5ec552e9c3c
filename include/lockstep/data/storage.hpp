#pragma once

#include <cstddef>
#include <string>

namespace lockstep::data {

/// How a data set's images lie in their files; of several files, the one that is slowest to read.
struct Storage {
  std::string layout;          ///< "contiguous", "chunks of 16 row(s), gzip"
  bool contiguous = true;      ///< any thread reads a row alone, nothing is decoded first
  bool through_hdf5 = false;   ///< HDF5 decodes, one thread at a time
  bool converted = false;      ///< whole numbers become uint8, or planes become pixels
  std::size_t block_rows = 1;  ///< rows that are decoded together
  std::size_t cache_bytes = 0;
  bool checksums = true;  ///< each row has its CRC-32C
};

}  // namespace lockstep::data
