#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lockstep/data/augment.hpp"
#include "lockstep/data/data_set.hpp"

namespace lockstep::data {

/// Seconds of one thread, stage by stage.
struct StageTimes {
  double read_s = 0;    ///< from the file, with its CRC-32C
  double decode_s = 0;  ///< of JPEGs
  double shape_s = 0;   ///< crop, resize, flip
  double colour_s = 0;  ///< effects, cutout
};

/// The data set as the batches show it: height and width are those of the rows that RowReader makes
/// by `spec`. Throws InputError, naming `path`, when the rows cannot be shaped so: JPEGs without a
/// size, or a window that is larger than rows of one size.
DataSetInfo delivered(const DataSetInfo& stored, const AugmentSpec& spec, const std::string& path);

/// Turns stored rows into rows of a batch: reads, decodes what is needed of a JPEG, crops, resizes,
/// flips. What comes out is a pure function of (spec.seed, epoch, row). Keeps its buffers between
/// rows: one for each thread. `rows` must outlive it.
class RowReader {
 public:
  /// `spec` must suit the data set: see delivered().
  RowReader(const DataSet& rows, const AugmentSpec& spec);
  ~RowReader();
  RowReader(RowReader&&) noexcept;
  std::size_t row_bytes() const;  ///< of a result
  /// Throws BadRow, or InputError, naming the file and the row in it.
  void read(std::uint64_t epoch, std::size_t row, std::span<std::uint8_t> image);
  /// Adds up times from now on (which takes a little); null: no more. It must outlive the reader.
  void measure(StageTimes* times);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
