#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/data/box.hpp"

namespace lockstep::data {

/// Bytes beyond the last pixel of a picture that a Resampler may read.
inline constexpr std::size_t resample_slack = 16;

/// The source pixels that an axis needs: those under the filter of the pixels that are wanted.
Extent needed(const Axis& axis);

/// Pixels of 4 bytes; the first one shown is (top, left) of the picture that axes count in.
struct Picture {
  const std::uint8_t* pixels = nullptr;
  std::size_t stride = 0;  ///< bytes from line to line
  std::size_t top = 0, left = 0;
};

/// Antialiased bilinear resampling: a triangle filter as wide as the reduction, in both directions,
/// as Pillow's resize(BILINEAR) and torchvision's Resize. Pillow rounds to whole levels between the
/// two directions, this to sixteenths, so their results differ by one level at most. The same bits
/// on every processor. Keeps its tables and its scratch memory between calls: one for each thread.
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

/// Pixels of 1 to 4 bytes become pixels of 4 (what is missing is any value). 4 more bytes than the
/// last pixel's may be read and written.
void widen_pixels(const std::uint8_t* from, std::size_t pixels, std::size_t channels,
                  std::uint8_t* to);

}  // namespace lockstep::data
