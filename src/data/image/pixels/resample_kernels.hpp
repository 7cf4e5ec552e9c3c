#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

// Exact arithmetic in single precision, so that no instruction set, order of additions or fused
// multiplication changes a bit: weights are integers that add up to a power of two, and every sum
// stays below 2^24.
//   down the columns   level (8 bits) x weight (15 bits) -> 23 bits, rounded to sixteenths: 12 bits
//   along the lines    sixteenths (12 bits) x weight (11 bits) -> 23 bits, rounded to levels
//
// Four target lines are made at once and kept interleaved. Their 16 numbers of one source column
// fill a register, so that the second direction, too, only multiplies and adds whole registers.

inline constexpr int column_bits = 15, line_bits = 11;
inline constexpr float to_sixteenths = 1.0f / 2048;     // 2^4 / 2^15
inline constexpr float to_levels = 1.0f / 32768;        // 1 / (2^4 * 2^11)
inline constexpr float round_to_integer = 12582912.0f;  // 1.5 * 2^23: adding and subtracting rounds
inline constexpr std::size_t resample_lines = 4, resample_pixel = 4, resample_lanes = 16;

/// For each number of channels, which bytes of four pixels of 4 bytes are kept.
inline constexpr auto resample_kept = [] {
  std::array<std::array<std::uint8_t, 16>, resample_pixel + 1> kept{};
  for (std::size_t channels = 1; channels <= resample_pixel; ++channels)
    for (std::size_t i = 0; i < 4 * channels; ++i)
      kept[channels][i] = static_cast<std::uint8_t>(i / channels * resample_pixel + i % channels);
  return kept;
}();

/// The two directions, compiled for one instruction set.
struct ResampleKernels {
  /// Blends `taps` lines of `blocks` x 4 pixels into one of the four interleaved ones.
  void (*blend_lines)(const std::uint8_t* from, std::size_t stride, const float* weights,
                      std::size_t taps, std::size_t blocks, float* to);
  /// Blends columns of the interleaved lines into `count` pixels of four target lines; each has
  /// `taps` weights and begins at column first[i].
  void (*blend_columns)(const float* lines, const std::uint32_t* first, const float* weights,
                        std::size_t taps, std::size_t count, bool flip, std::size_t channels,
                        std::uint8_t* const (&to)[resample_lines]);
};

extern const ResampleKernels resample_plain;  ///< for any processor

/// All that this processor can run, the fastest first; each kind of processor has its own source.
std::vector<const ResampleKernels*> resample_sets();

}  // namespace lockstep::data
