#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

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
