#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/half.hpp"

/// The element-wise arithmetic of pixels and of vectors. The loss's is in cross_entropy.hpp, that
/// of batch norm in batch_norm.hpp, the update's in optim. Everything is constexpr and so callable
/// in host and device code alike (nvcc: --expt-relaxed-constexpr): what the tests show about a
/// formula here holds for the GPU's kernels too.
namespace lockstep::backend::arithmetic {

/// Of a vector that Gram-Schmidt's method has made shorter than this share of what it was, little
/// but rounding is left.
constexpr double dependent_share = 1e-5;
/// Number i of the vector, in [-1, 1), that takes the place of a dependent vector `which`.
constexpr float stand_in(std::size_t which, std::size_t i) {
  std::uint32_t bits = static_cast<std::uint32_t>(i * 8 + which + 1) * 0x9E3779B1u;
  bits = (bits ^ bits >> 15) * 0x85EBCA77u;
  bits = (bits ^ bits >> 13) * 0xC2B2AE3Du;
  return static_cast<float>((bits ^ bits >> 16) >> 8) * 0x1p-23f - 1;
}

/// A value of uint8 (0 to 255) becomes v * scale + shift = (v / 255 - mean) / deviation.
struct PixelScale {
  float scale = 1, shift = 0;
};
constexpr PixelScale pixel_scale(double mean, double deviation) {
  return {static_cast<float>(1 / (255 * deviation)), static_cast<float>(-mean / deviation)};
}
constexpr float normalised(std::uint8_t pixel, PixelScale by) {
  return static_cast<float>(pixel) * by.scale + by.shift;
}

/// A value of any other element becomes (v - mean) * inverse. The subtraction comes first: of
/// values whose mean is large next to their deviation, nothing is lost.
struct ElementEntry {
  float mean = 0, inverse = 1;
};
constexpr ElementEntry element_entry(float mean, float deviation) { return {mean, 1 / deviation}; }
constexpr float entered(float value, ElementEntry by) { return (value - by.mean) * by.inverse; }

/// True for an infinity and for NaN.
constexpr bool overflowed(float value) {
  return !(value <= 3.402823466e+38f && value >= -3.402823466e+38f);
}

// ---- vectors: 16-bit floats are in base/half.hpp -----------------------------------------------

/// The bits of an absolute value: as integers they have the order of the values, and those of a NaN
/// are larger than all others.
constexpr std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffff;
}

/// Values of 8 bits that share one scale.
constexpr std::size_t scale_block = 256;
/// Of a block with this largest magnitude: that becomes 127. A block of tiny values becomes 0, and
/// one with an infinity or NaN becomes NaN.
constexpr float block_scale(float largest) {
  constexpr float least = 1e-30f;
  if (overflowed(largest)) return std::bit_cast<float>(0x7fc00000u);
  return largest < least ? 0 : largest / 127;
}
/// What to_i8() multiplies by.
constexpr float inverse_of(float scale) { return scale > 0 ? 1 / scale : 0; }
/// To the nearest integer, ties to even: this sum's last bit is worth 1.
constexpr std::int8_t to_i8(float value, float inverse) {
  const auto bits = std::bit_cast<std::uint32_t>(value * inverse + 12582912.f);  // 1.5 * 2^23
  return static_cast<std::int8_t>(bits);
}
constexpr float from_i8(std::int8_t value, float scale) {
  return static_cast<float>(value) * scale;
}

}  // namespace lockstep::backend::arithmetic
