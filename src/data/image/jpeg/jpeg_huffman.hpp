#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
// jpeglib.h needs size_t and FILE before it.
#include <jpeglib.h>

namespace lockstep::data::jpeg {

/// A coefficient of `size` bits, as they stand in the file.
constexpr std::int32_t extended(std::uint32_t bits, unsigned size) {
  const auto value = static_cast<std::int32_t>(bits);
  return bits >> (size - 1) != 0 ? value : value - static_cast<std::int32_t>((1u << size) - 1);
}

// An entry of a table: 8 bits length, 4 bits run, 4 bits size, 16 bits value.
//   value != 0            a whole coefficient of that size, and the length of all of it
//   value = 0, size != 0  only its code fits: as many bits follow
//   size = 0              no coefficient: run 15 passes over 16, any other ends the block
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

// Two coefficients: 6 bits length, 1 bit whether it is no plain pair, 5 bits each how far the first
// and the second lie behind the last one, 8 and 7 bits their values. A first one alone stands there
// twice. No plain pair: a block's end, alone (no step) or behind one coefficient; with length 0,
// what a pair cannot hold.
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
/// A value that `bits` hold, with its sign.
constexpr bool fits(std::int32_t value, unsigned bits) {
  return value >= -(1 << (bits - 1)) && value < 1 << (bits - 1);
}

// What is passed over at once: 6 bits length, 1 bit whether it is more than plain coefficients,
// then how many they are. More: the block ends behind them; with length 0, the first symbol is too
// long.
constexpr unsigned most_passed = 18;  // bits
constexpr std::uint16_t pass(unsigned length, bool ends, unsigned coefficients) {
  return static_cast<std::uint16_t>(length | (ends ? 64u : 0u) | coefficients << 7);
}
constexpr std::uint16_t no_pass = 64;
constexpr unsigned pass_length(std::uint16_t pass) { return pass & 63; }
constexpr bool is_plain(std::uint16_t pass) { return (pass & 64) == 0; }
constexpr unsigned pass_coefficients(std::uint16_t pass) { return pass >> 7; }

/// One table of a JPEG, for looking up several bits at a time.
struct HuffmanTable {
  // Larger tables push each other out of the first-level cache.
  static constexpr unsigned lookup_bits = 10, pass_bits = 11;

  std::array<std::uint8_t, 17> counts{};
  std::array<std::uint8_t, 256> symbols{};
  /// By the next lookup_bits bits: what they begin with, as entry() has it.
  std::array<std::uint32_t, std::size_t{1} << lookup_bits> entries;
  /// By the same bits: the first two coefficients, as pair() has it.
  std::array<std::uint32_t, std::size_t{1} << lookup_bits> pairs;
  /// For codes that are longer: by length, the code behind the last one (16 bits), and where its
  /// symbols stand.
  std::array<std::uint32_t, 18> ends;
  std::array<std::int32_t, 17> offsets;
  /// By the next pass_bits bits: as many whole coefficients as they hold, as pass() has it.
  std::array<std::uint16_t, std::size_t{1} << pass_bits> passes;

  /// What it holds stays when `from` is the same as the last time. Without `ac`, there are neither
  /// pairs nor passes.
  void build(const JHUFF_TBL& from, bool ac);

 private:
  void build_pairs();
  void build_passes();
};

}  // namespace lockstep::data::jpeg
