#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/data/box.hpp"
#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// Bytes after the last pixel of a picture that a Resampler may read.
inline constexpr std::size_t resample_slack = 16;

/// The source pixels that an axis needs: those under the filter of the wanted pixels.
PixelRun needed(const Axis& axis);

/// Pixels of 4 bytes. The first one is at (top, left) of the picture in which the axes count.
struct Picture {
  const std::uint8_t* pixels = nullptr;
  std::size_t stride = 0;  ///< bytes from line to line
  std::size_t top = 0, left = 0;
};

/// Antialiased bilinear resampling: a triangle filter as wide as the reduction, in both directions,
/// as in Pillow's resize(BILINEAR) and torchvision's Resize. Between the two directions Pillow
/// rounds to whole levels, this class to sixteenths, so results differ by one level at most. The
/// bits are the same on every processor.
///
/// **Thread safety:** one for each thread; it keeps its tables and scratch memory between calls.
class Resampler {
 public:
  /// Writes [rows.count, columns.count, channels] to `to`, mirrored if asked; channels are the
  /// first 1 to 4 bytes of the pixels. The picture must show needed() of both axes.
  void run(const Picture& from, const Axis& rows, const Axis& columns, bool flip,
           std::size_t channels, std::uint8_t* to);

 private:
  /// For each wanted pixel: its first source pixel and `most` weights, integers that add up to a
  /// power of two.
  struct Taps {
    std::vector<std::uint32_t> first;
    std::vector<float> weights;
    std::size_t most = 0;
    void plan(const Axis& axis, int bits);
  };
  Taps rows_, columns_;
  std::vector<float> lines_;  ///< 4 target lines: [source column, line, byte of a pixel]
};

/// The same filter for elements of any kind and any number of channels: in double, each result
/// between the smallest and the largest of the values that it is made of. Values that stand for no
/// data are left out; what they have more than half of is no data.
///
/// **Thread safety:** one for each thread; it keeps its scratch memory between calls.
class ValueResampler {
 public:
  /// `from`: an image of the form `of`. Writes [rows.count, columns.count, channels] elements.
  void run(const DataSetInfo& of, const std::uint8_t* from, const Axis& rows, const Axis& columns,
           bool flip, std::uint8_t* to);

 private:
  std::vector<float> values_, line_;  ///< NaN: no data
  std::vector<std::uint8_t> made_;
};

/// Turns pixels of 1 to 4 bytes into pixels of 4 (missing bytes get any value). Up to 4 bytes after
/// the last pixel may be read and written.
void widen_pixels(const std::uint8_t* from, std::size_t pixels, std::size_t channels,
                  std::uint8_t* to);

}  // namespace lockstep::data
