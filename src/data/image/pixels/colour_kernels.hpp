#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

// Single precision without fused multiplications (the Makefile says so for this folder), in the
// order of torchvision's formulas: no instruction set changes a bit.

/// The inner loops of colour.hpp, compiled for one instruction set. Values are bytes; a pixel has
/// three.
struct ColourKernels {
  /// value * ratio + shift, cut off to 0 .. 255 and to whole levels.
  void (*stretch)(std::uint8_t* values, std::size_t count, float ratio, float shift);
  /// values * ratio + others * rest + round, in the same way.
  void (*blend)(std::uint8_t* values, const std::uint8_t* others, std::size_t count, float ratio,
                float rest, float round);
  /// The sum of all pixels' grey levels.
  std::uint64_t (*grey_sum)(const std::uint8_t* pixels, std::size_t count);
  /// Blends every pixel with its grey level.
  void (*saturate)(std::uint8_t* pixels, std::size_t count, float ratio, float rest);
  /// Turns the hue by a share of the circle, -1/2 to 1/2.
  void (*turn)(std::uint8_t* pixels, std::size_t count, float by);
  /// Blends values with the mean of their neighbourhood of 3 x 3 pixels, in which they count five
  /// times. `above`, `at` and `below` are lines; the neighbours of value i are i - step and i +
  /// step.
  void (*sharpen)(const std::uint8_t* above, const std::uint8_t* at, const std::uint8_t* below,
                  std::ptrdiff_t count, std::ptrdiff_t step, float ratio, float rest,
                  std::uint8_t* to);
};

extern const ColourKernels colour_plain;  ///< for any processor

/// All that this processor can run, the fastest first; each kind of processor has its own source.
std::vector<const ColourKernels*> colour_sets();

}  // namespace lockstep::data
