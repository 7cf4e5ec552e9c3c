#pragma once

#include <cstddef>
#include <string>

#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// How HDF5 files are read that are no shards: one data set of images, one of labels. Rows of uint8
/// [height, width, channels] are taken as they are, everything else becomes that as it is read.
struct ExternalSpec {
  std::string images, labels;   ///< names of the data sets; empty: found by shape and name
  std::string layout = "auto";  ///< auto, nhwc, nchw
  std::string range = "auto";   ///< what floats go from and to: auto, 0-1, 0-255, -1-1
  std::size_t classes = 0;      ///< 0: as many as the file names, else the largest label and one
  /// The training set of a validation set, which has its classes, mean and deviation; null: they
  /// are found, the last two from 1024 rows at most.
  const DataSetInfo* like = nullptr;
  std::size_t cache_bytes = std::size_t{256} << 20;  ///< for decoded chunks
};

}  // namespace lockstep::data
