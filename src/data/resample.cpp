#include "resample.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/base/error.hpp"

// Exact arithmetic in single precision, so that no instruction set, order of additions or fused
// multiplication changes a bit: weights are integers that add up to a power of two, and every sum
// stays below 2^24.
//   down the columns   level (8 bits) x weight (15 bits) -> 23 bits, rounded to sixteenths: 12 bits
//   along the lines    sixteenths (12 bits) x weight (11 bits) -> 23 bits, rounded to levels
//
// Four target lines are made at once and kept interleaved: the 16 numbers of one source column in
// them are one register, so that the second direction, too, only multiplies and adds whole
// registers.

namespace lockstep::data {
namespace {

using Bytes16 = std::uint8_t __attribute__((vector_size(16)));
using Integers16 = std::int32_t __attribute__((vector_size(64)));
using Floats16 = float __attribute__((vector_size(64)));

constexpr int kColumnBits = 15, kLineBits = 11;
constexpr float kToSixteenths = 1.0f / 2048;  // 2^4 / 2^15
constexpr float kToLevels = 1.0f / 32768;     // 1 / (2^4 * 2^11)
constexpr float kRoundToInteger = 12582912;   // 1.5 * 2^23: adding and subtracting it rounds
constexpr std::size_t kLines = 4, kPixelBytes = 4, kTogether = kLines * kPixelBytes;

/// The source pixels under the filter of one target pixel, and its weights before normalisation.
struct Filter {
  double scale, reach, inverse;
  std::size_t length;

  explicit Filter(const Axis& axis)
      : scale(static_cast<double>(axis.length) / static_cast<double>(axis.target)),
        reach(std::max(scale, 1.0)),
        inverse(1 / reach),
        length(axis.length) {}
  double centre(std::size_t target) const { return (static_cast<double>(target) + 0.5) * scale; }
  Extent under(std::size_t target) const {
    const double at = centre(target), end = static_cast<double>(length);
    return {static_cast<std::size_t>(std::max(at - reach + 0.5, 0.0)),
            static_cast<std::size_t>(std::min(at + reach + 0.5, end))};
  }
  double weight(std::size_t target, std::size_t source) const {
    const double away = (static_cast<double>(source) + 0.5 - centre(target)) * inverse;
    return std::max(1 - std::abs(away), 0.0);
  }
};

/// Blends `taps` lines into one of the four interleaved ones; `blocks` of 4 pixels.
__attribute__((target_clones("avx512f", "avx2", "default"))) void blend_lines(
    const std::uint8_t* from, std::size_t stride, const float* weights, std::size_t taps,
    std::size_t blocks, float* to) {
  for (std::size_t block = 0; block < blocks; ++block, from += 16, to += 4 * kTogether) {
    Floats16 sum{};
    for (std::size_t k = 0; k < taps; ++k) {
      Bytes16 pixels;
      std::memcpy(&pixels, from + k * stride, sizeof pixels);
      sum += __builtin_convertvector(pixels, Floats16) * weights[k];
    }
    sum = sum * kToSixteenths + kRoundToInteger - kRoundToInteger;
    for (std::size_t pixel = 0; pixel < 4; ++pixel)
      std::memcpy(to + pixel * kTogether, reinterpret_cast<const float*>(&sum) + 4 * pixel, 16);
  }
}

/// Blends columns of the interleaved lines into `count` pixels of four target lines.
__attribute__((target_clones("avx512f", "avx2", "default"))) void blend_columns(
    const float* lines, const std::uint32_t* first, const float* weights, std::size_t taps,
    std::size_t count, bool flip, std::size_t channels, std::uint8_t* const (&to)[kLines]) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t target = flip ? count - 1 - i : i;
    const float* column = lines + first[target] * kTogether;
    const float* weight = weights + target * taps;
    Floats16 sum{};
    for (std::size_t k = 0; k < taps; ++k) {
      Floats16 numbers;
      std::memcpy(&numbers, column + k * kTogether, sizeof numbers);
      sum += numbers * weight[k];
    }
    const auto levels = __builtin_convertvector(sum * kToLevels + 0.5f, Integers16);
    const auto pixels = __builtin_convertvector(levels, Bytes16);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&pixels);
    // Four bytes at once, the surplus overwritten by the next pixel, as long as there is one.
    const std::size_t at = i * channels;
    const std::size_t size = at + kPixelBytes <= count * channels ? kPixelBytes : channels;
    if (size == kPixelBytes) {
      for (std::size_t line = 0; line < kLines; ++line)
        std::memcpy(to[line] + at, bytes + line * kPixelBytes, kPixelBytes);
    } else {
      for (std::size_t line = 0; line < kLines; ++line)
        std::memcpy(to[line] + at, bytes + line * kPixelBytes, size);
    }
  }
}

}  // namespace

Extent needed(const Axis& axis) {
  const Filter filter(axis);
  return {axis.begin + filter.under(axis.first).begin,
          axis.begin + filter.under(axis.first + axis.count - 1).end};
}

void Resampler::Taps::plan(const Axis& axis, int bits) {
  const Filter filter(axis);
  most = 0;
  first.resize(axis.count);
  for (std::size_t i = 0; i < axis.count; ++i) {
    const Extent under = filter.under(axis.first + i);
    first[i] = static_cast<std::uint32_t>(under.begin);
    most = std::max(most, under.end - under.begin);
  }
  weights.assign(axis.count * most, 0);
  const double whole = 1 << bits;
  for (std::size_t i = 0; i < axis.count; ++i) {
    const std::size_t target = axis.first + i;
    const Extent under = filter.under(target);
    float* const weight = &weights[i * most];
    double sum = 0;
    for (std::size_t s = under.begin; s < under.end; ++s) sum += filter.weight(target, s);
    std::size_t largest = 0;
    int left = 1 << bits;
    for (std::size_t k = 0; k < under.end - under.begin; ++k) {
      const double share = filter.weight(target, under.begin + k) / sum;
      const int rounded = static_cast<int>(share * whole + 0.5);
      left -= rounded;
      weight[k] = static_cast<float>(rounded);
      if (weight[k] > weight[largest]) largest = k;
    }
    weight[largest] += static_cast<float>(left);
  }
}

void Resampler::run(const Picture& from, const Axis& rows, const Axis& columns, bool flip,
                    std::size_t channels, std::uint8_t* to) {
  check(channels >= 1 && channels <= kPixelBytes, "pixels of 1 to 4 bytes");
  const Extent across = needed(columns), down = needed(rows);
  check(from.left <= across.begin && from.top <= down.begin, "the picture shows what is needed");
  rows_.plan(rows, kColumnBits);
  columns_.plan(columns, kLineBits);
  for (std::uint32_t& first : columns_.first)
    first -= static_cast<std::uint32_t>(across.begin - columns.begin);
  const std::size_t blocks = (across.end - across.begin + 3) / 4;
  // Weights that are 0 fill up the short lists, and may fall behind the last column.
  lines_.resize(std::max(lines_.size(), (4 * blocks + columns_.most) * kTogether));
  const std::uint8_t* corner = from.pixels + (across.begin - from.left) * kPixelBytes;
  const std::size_t line_bytes = columns.count * channels;

  for (std::size_t y = 0; y < rows.count; y += kLines) {
    std::uint8_t* lines[kLines];
    for (std::size_t i = 0; i < kLines; ++i) {
      const std::size_t row = std::min(y + i, rows.count - 1);  // the last one again, if need be
      lines[i] = to + row * line_bytes;
      const std::size_t first = rows.begin + rows_.first[row];
      const std::size_t taps = std::min(rows_.most, down.end - first);
      blend_lines(corner + (first - from.top) * from.stride, from.stride,
                  &rows_.weights[row * rows_.most], taps, blocks, &lines_[i * kPixelBytes]);
    }
    blend_columns(lines_.data(), columns_.first.data(), columns_.weights.data(), columns_.most,
                  columns.count, flip, channels, lines);
  }
}

void widen_pixels(const std::uint8_t* from, std::size_t pixels, std::size_t channels,
                  std::uint8_t* to) {
  for (std::size_t i = 0; i < pixels; ++i) std::memcpy(to + 4 * i, from + channels * i, 4);
}

}  // namespace lockstep::data
