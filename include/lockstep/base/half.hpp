#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

/// Floats of 16 bits, as the host computes with them: widened, and rounded to the nearest (ties to
/// even). No branches and no subnormal floats, so that loops become vectors and a processor that
/// flushes subnormals gets the same bits.

constexpr float widen_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

constexpr std::uint16_t round_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<std::uint16_t>((nan ? bits | 0x400000 : rounded) >> 16);
}

constexpr float widen_f16(std::uint16_t bits) {
  constexpr std::uint32_t bias = 112u << 23;   // of the exponents
  constexpr std::uint32_t least = 0x38800000;  // 2^-14, below which f16 is subnormal
  const std::uint32_t wide = (bits & 0x7fffu) << 13;
  const std::uint32_t exponent = bits & 0x7c00u;
  const std::uint32_t normal = wide + bias + (exponent == 0x7c00 ? bias : 0);
  const float small = std::bit_cast<float>(wide + least) - std::bit_cast<float>(least);
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  return std::bit_cast<float>((exponent == 0 ? std::bit_cast<std::uint32_t>(small) : normal) |
                              sign);
}

constexpr std::uint16_t round_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t size = bits & 0x7fffffff;
  // One bit of the sum with 0.5 is worth one of f16's subnormals, so the addition rounds.
  const std::uint32_t half = 0x3f000000;
  const float shifted = std::bit_cast<float>(size) + std::bit_cast<float>(half);
  const std::uint32_t small = std::bit_cast<std::uint32_t>(shifted) - half;
  const std::uint32_t normal = (size - (112u << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
  const std::uint32_t large = size > 0x7f800000 ? 0x7e00 : 0x7c00;  // NaN, or beyond 65519
  const std::uint32_t found = size >= 0x47800000 ? large : size < 0x38800000 ? small : normal;
  return static_cast<std::uint16_t>(found | (bits >> 16 & 0x8000));
}

}  // namespace lockstep
