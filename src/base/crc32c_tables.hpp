#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

// What the instruction of a processor and the tables of crc32c_portable() have in common.
namespace lockstep {

/// The fastest way of this processor; each kind of processor has its own source.
using Crc32c = std::uint32_t (*)(const void* data, std::size_t size, std::uint32_t crc);
Crc32c fastest_crc32c();

inline constexpr std::uint32_t reflected_polynomial = 0x82F63B78u;  // 0x1EDC6F41, bit-reflected

// Slicing by 8: tables[k][b] is the effect of byte b when k zero bytes follow it.
using SliceTables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr SliceTables make_slice_tables() {
  SliceTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? reflected_polynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

inline constexpr SliceTables slice_tables = make_slice_tables();

inline std::uint64_t load64(const std::uint8_t* from) {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// A CRC register is a vector over GF(2), and appending zero bytes is a linear map of it: column i
// is where bit i goes. Squaring the map doubles the number of zeros.
using LinearMap = std::array<std::uint32_t, 32>;

constexpr std::uint32_t image_of(const LinearMap& map, std::uint32_t vector) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < 32; ++i) sum ^= ((vector >> i) & 1) ? map[i] : 0;
  return sum;
}

constexpr LinearMap append_zeros(std::size_t bytes_power_of_two) {
  LinearMap map{};
  for (std::size_t i = 0; i < 32; ++i) {
    const std::uint32_t bit = 1u << i;
    map[i] = (bit >> 8) ^ slice_tables[0][bit & 0xFF];
  }
  for (; bytes_power_of_two > 1; bytes_power_of_two /= 2) {
    LinearMap squared{};
    for (std::size_t i = 0; i < 32; ++i) squared[i] = image_of(map, map[i]);
    map = squared;
  }
  return map;
}

// The same map, one look-up for each byte of the register.
template <std::size_t bytes>
struct ZeroTable {
  std::array<std::array<std::uint32_t, 256>, 4> table{};

  constexpr ZeroTable() {
    const LinearMap map = append_zeros(bytes);
    for (std::uint32_t k = 0; k < 4; ++k) {
      for (std::uint32_t byte = 0; byte < 256; ++byte)
        table[k][byte] = image_of(map, byte << (8 * k));
    }
  }

  std::uint32_t operator()(std::uint32_t crc) const {
    return table[0][crc & 0xFF] ^ table[1][(crc >> 8) & 0xFF] ^ table[2][(crc >> 16) & 0xFF] ^
           table[3][crc >> 24];
  }
};

}  // namespace lockstep
