#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lockstep/data/augment/augment.hpp"
#include "lockstep/data/shard/data_set.hpp"

namespace lockstep::data {

/// Seconds that one thread spent on each kind of work.
struct RowTimes {
  double read_s = 0;    ///< from the file, with its CRC-32C
  double decode_s = 0;  ///< of JPEGs
  double shape_s = 0;   ///< crop, resize, flip
  double colour_s = 0;  ///< effects, cutout
};

/// The data set as seen in batches: height and width are those of the rows that a RowReader makes
/// with `spec`. Throws InputError, naming `path`, when that is impossible: JPEGs without a target
/// size, or a window that is larger than rows of one size.
DataSetInfo delivered(const DataSetInfo& stored, const AugmentSpec& spec, const std::string& path);

/// Turns stored rows into rows of a batch: reads, decodes the needed part of a JPEG, crops,
/// resizes, flips. The result is a pure function of (spec.seed, epoch, row). `rows` must outlive
/// it.
///
/// **Thread safety:** one reader for each thread; it keeps its buffers between rows.
class RowReader {
 public:
  /// `spec` must suit the data set: see delivered().
  RowReader(const DataSet& rows, const AugmentSpec& spec);
  ~RowReader();
  RowReader(RowReader&&) noexcept;
  std::size_t row_bytes() const;  ///< of a finished row
  /// Throws BadRow, or InputError, naming the file and the row in it.
  void read(std::uint64_t epoch, std::size_t row, std::span<std::uint8_t> image);
  /// Adds its times to `times` from now on (at a small cost); null stops that. `times` must outlive
  /// the reader.
  void measure(RowTimes* times);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
