#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
// jpeglib.h needs size_t and FILE before it.
#include <jpeglib.h>

namespace lockstep::data::jpeg {

/// A coefficient of `size` bits, as they are in the file.
constexpr std::int32_t extended(std::uint32_t bits, unsigned size) {
  const auto value = static_cast<std::int32_t>(bits);
  return bits >> (size - 1) != 0 ? value : value - static_cast<std::int32_t>((1u << size) - 1);
}

// An entry of a table: 8 bits length, 4 bits run, 4 bits size, 16 bits value.
//   value != 0            a whole coefficient of that size, and the length of all of it
//   value = 0, size != 0  only its code fits: `size` more bits follow
//   size = 0              no coefficient: run 15 skips 16, any other run ends the block
//   length = 0            a longer code, or none
constexpr std::uint32_t entry(unsigned length, unsigned run, unsigned size, std::int32_t value) {
  return length | run << 8 | size << 12 | static_cast<std::uint32_t>(value) << 16;
}
constexpr unsigned length_of(std::uint32_t e) { return e & 255; }
constexpr unsigned run_of(std::uint32_t e) { return e >> 8 & 15; }
constexpr unsigned size_of(std::uint32_t e) { return e >> 12 & 15; }
constexpr std::int32_t value_of(std::uint32_t e) { return static_cast<std::int32_t>(e) >> 16; }
constexpr bool is_whole(std::uint32_t e) { return value_of(e) != 0; }
constexpr bool ends_block(std::uint32_t e) { return size_of(e) == 0 && run_of(e) != 15; }
constexpr unsigned code_length(std::uint32_t e) {
  return length_of(e) - (is_whole(e) ? size_of(e) : 0);
}
constexpr unsigned full_length(std::uint32_t e) {
  return length_of(e) + (is_whole(e) ? 0 : size_of(e));
}

// Two coefficients: 6 bits length; 1 bit: not a plain pair; 5 bits each for the step from the last
// coefficient to the first and to the second; 8 and 7 bits for their values. A single coefficient
// appears twice. Not a plain pair: the end of a block, alone (no step) or after one coefficient;
// with length 0, anything that a pair cannot hold.
constexpr unsigned pair_step_bits = 5, pair_first_bits = 8, pair_second_bits = 7;
struct Coefficient {
  unsigned step = 0;
  std::int32_t value = 0;
};
constexpr std::uint32_t pair(unsigned length, bool ends, Coefficient first, Coefficient second) {
  return length | (ends ? 64u : 0u) | first.step << 7 | second.step << 12 |
         (static_cast<std::uint32_t>(first.value) & 255) << 17 |
         static_cast<std::uint32_t>(second.value) << 25;
}
constexpr std::uint32_t no_pair = 64;
constexpr unsigned pair_length(std::uint32_t pair) { return pair & 63; }
constexpr bool is_plain(std::uint32_t pair) { return (pair & 64) == 0; }
constexpr bool ends_behind(std::uint32_t pair) { return !is_plain(pair) && pair_length(pair) > 0; }
constexpr unsigned first_step(std::uint32_t pair) { return pair >> 7 & 31; }
constexpr unsigned second_step(std::uint32_t pair) { return pair >> 12 & 31; }
constexpr std::int32_t first_value(std::uint32_t pair) {
  return static_cast<std::int8_t>(pair >> 17);
}
constexpr std::int32_t second_value(std::uint32_t pair) {
  return static_cast<std::int32_t>(pair) >> 25;
}
/// The signed value of these bits.
constexpr bool fits(std::int32_t value, unsigned bits) {
  return value >= -(1 << (bits - 1)) && value < 1 << (bits - 1);
}

// What is skipped at once: 6 bits length; 1 bit: more than plain coefficients; then the number of
// coefficients. More: the block ends after them; with length 0, the first symbol is too long.
constexpr unsigned most_passed = 18;  // bits
constexpr std::uint16_t pass(unsigned length, bool ends, unsigned coefficients) {
  return static_cast<std::uint16_t>(length | (ends ? 64u : 0u) | coefficients << 7);
}
constexpr std::uint16_t no_pass = 64;
constexpr unsigned pass_length(std::uint16_t pass) { return pass & 63; }
constexpr bool is_plain(std::uint16_t pass) { return (pass & 64) == 0; }
constexpr unsigned pass_coefficients(std::uint16_t pass) { return pass >> 7; }

/// One table of a JPEG, made to look up several bits at a time.
struct HuffmanTable {
  // Larger tables would push each other out of the first-level cache.
  static constexpr unsigned lookup_bits = 10, pass_bits = 11;

  std::array<std::uint8_t, 17> counts{};
  std::array<std::uint8_t, 256> symbols{};
  /// By the next lookup_bits bits: their first symbol, in the form of entry().
  std::array<std::uint32_t, std::size_t{1} << lookup_bits> entries{};
  /// By the same bits: the first two coefficients, in the form of pair().
  std::array<std::uint32_t, std::size_t{1} << lookup_bits> pairs{};
  /// For longer codes, by length: the code after the last one (16 bits), and where its symbols are.
  std::array<std::uint32_t, 18> ends{};
  std::array<std::int32_t, 17> offsets{};
  /// By the next pass_bits bits: as many whole coefficients as they hold, in the form of pass().
  std::array<std::uint16_t, std::size_t{1} << pass_bits> passes{};

  /// Keeps its content when `from` is the same as the last time. Without `ac`, there are neither
  /// pairs nor passes. Throws InputError for a table without codes, which libjpeg would refuse only
  /// where a block uses it.
  void build(const JHUFF_TBL& from, bool ac);

 private:
  void build_pairs();
  void build_passes();
};

}  // namespace lockstep::data::jpeg
