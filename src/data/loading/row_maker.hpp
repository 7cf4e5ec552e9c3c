#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/augment/effects.hpp"
#include "data/augment/geometry.hpp"
#include "data/image/jpeg/jpeg_codec.hpp"
#include "data/image/pixels/resample.hpp"
#include "lockstep/data/loading/loader.hpp"
#include "lockstep/data/loading/row_reader.hpp"

namespace lockstep::data {

/// Makes rows of a batch from stored images, wherever these come from: decodes the needed part of a
/// JPEG, crops, resizes, flips, paints. A pure function of the image and (spec.seed, epoch, row).
///
/// **Thread safety:** one for each thread; it keeps its buffers between rows.
class RowMaker {
 public:
  /// `spec` must suit such images: see delivered(), which throws InputError naming `path`.
  RowMaker(const DataSetInfo& stored, const AugmentSpec& spec, const std::string& path);
  std::size_t row_bytes() const { return height_ * width_ * pixel_bytes_; }
  /// Rows of pixels come out exactly as they are stored.
  bool as_stored() const { return as_stored_; }
  bool resamples() const { return resampled_; }

  /// From pixels of the stored size. If it resamples, resample_slack bytes must follow them.
  void from_pixels(std::uint64_t epoch, std::size_t row, const std::uint8_t* pixels,
                   std::uint8_t* image);
  /// From a JPEG file of this size. Throws InputError saying what is wrong with it; the caller adds
  /// which image it is.
  void from_jpeg(std::uint64_t epoch, std::size_t row, std::span<const std::uint8_t> file,
                 std::size_t tall, std::size_t across, std::uint8_t* image);

  // The time since begin(), or the last end(), counts for the work that ends.
  void measure(RowTimes* times) { times_ = times; }
  void begin();
  void end(double RowTimes::*work);

 private:
  void finish(std::uint64_t epoch, std::size_t row, std::uint8_t* image);

  AugmentSpec spec_, uncut_;   // uncut: without the cutout, which comes last
  std::size_t tall_, across_;  // of stored pixels
  std::size_t height_, width_, channels_, pixel_bytes_;  // of a finished row
  bool as_stored_, resampled_;
  std::vector<std::uint8_t> fill_, border_, wide_;  // border: of the padding; empty: black
  std::vector<std::uint8_t> unturned_;
  JpegRegion region_;
  Resampler resampler_;
  DataSetInfo stored_;
  bool by_value_ = false;  // resampled as elements, not as pixels of 1 to 4 bytes
  ValueResampler value_resampler_;
  Painter painter_;
  RowTimes* times_ = nullptr;
  double since_s_ = 0;
};

/// Reads row found.row of `rows`. If it is broken, reads the first whole row of a sequence that is
/// a pure function of (seed, epoch, row). found.by is the row that was read; found.what says what
/// was wrong. Throws BadRow, about the first row, when a hundred in a row are broken, and
/// InputError when a file cannot be read.
void read_whole(const MakeRow& make, std::size_t rows, std::uint64_t seed, std::uint64_t epoch,
                Replaced& found, std::span<std::uint8_t> image);

/// The `attempt`-th row, from 0, that may replace a broken one.
std::size_t substitute(std::size_t rows, std::uint64_t seed, std::uint64_t epoch, std::size_t row,
                       std::uint32_t attempt);

}  // namespace lockstep::data
