#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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

/// The result of copy_to().
struct NodeCopy {
  bool fits = false;
  std::uint64_t bytes = 0;      ///< that the copy takes
  std::uint64_t there = 0;      ///< of these, copied by an earlier run or another rank
  std::uint64_t available = 0;  ///< free space at the target
};

/// How a shard stores its images: as pixels, all of one size, or as JPEG files of any size.
enum class Encoding { raw, jpeg };

/// What all shards of a data set agree on, and what normalisation needs. data/README.md specifies
/// the file format.
struct DataSetInfo {
  std::size_t rows = 0, height = 0, width = 0, channels = 0;  ///< height, width: 0 with jpeg
  Encoding encoding = Encoding::raw;
  std::vector<std::string> classes;  ///< names; a label is an index into them
  std::vector<float> mean, stddev;   ///< per channel, of value / 255, over the training rows (the
                                     ///< validation set carries the training set's)
  /// Of all labels in their order and, of shards, of the rows' checksums; 0: not known. Images in
  /// other programs' files are not in it: they have no checksums.
  std::uint64_t rows_hash = 0;
  std::size_t row_bytes() const { return height * width * channels; }
};

}  // namespace lockstep::data
