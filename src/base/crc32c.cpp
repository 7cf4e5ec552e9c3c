#include "lockstep/base/crc32c.hpp"

#include <immintrin.h>

#include <array>
#include <cstring>

namespace lockstep {
namespace {

constexpr std::uint32_t reflected_polynomial = 0x82F63B78u;  // 0x1EDC6F41, bit-reflected

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

constexpr SliceTables slice_tables = make_slice_tables();

std::uint64_t load64(const std::uint8_t* from) {
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

// The instruction takes three cycles, but one can start every cycle. So three lanes of `lane` bytes
// run in parallel, and the map above carries each lane's result over the lanes that follow.
template <std::size_t lane>
[[gnu::target("sse4.2")]] std::uint32_t three_lanes(const std::uint8_t*& at, std::size_t& size,
                                                    std::uint32_t crc) {
  static constexpr ZeroTable<lane> over_one_lane;
  for (; size >= 3 * lane; size -= 3 * lane, at += 3 * lane) {
    std::uint64_t first = crc, second = 0, third = 0;
    for (std::size_t i = 0; i < lane; i += 8) {
      first = _mm_crc32_u64(first, load64(at + i));
      second = _mm_crc32_u64(second, load64(at + lane + i));
      third = _mm_crc32_u64(third, load64(at + 2 * lane + i));
    }
    crc = over_one_lane(static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
    crc = over_one_lane(crc) ^ static_cast<std::uint32_t>(third);
  }
  return crc;
}

[[gnu::target("sse4.2")]] std::uint32_t crc32c_instruction(const void* data, std::size_t size,
                                                           std::uint32_t crc) {
  const auto* at = static_cast<const std::uint8_t*>(data);
  crc = ~crc;
  crc = three_lanes<1024>(at, size, crc);
  crc = three_lanes<128>(at, size, crc);
  std::uint64_t wide = crc;
  for (; size >= 8; size -= 8, at += 8) wide = _mm_crc32_u64(wide, load64(at));
  crc = static_cast<std::uint32_t>(wide);
  for (; size > 0; --size, ++at) crc = _mm_crc32_u8(crc, *at);
  return ~crc;
}

// Carry-less products fold each 256 bytes into the next: bytes at distance d are multiplied by x^(8
// d) modulo the polynomial (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction", Intel 2009). For d = 256, bit-reflected and shifted as in the paper:
// x^2080 for the lower half of a lane and x^2016 for the upper one. The remaining 256 bytes have
// the CRC of the whole.
[[gnu::target("avx512f,vpclmulqdq")]] __m512i folded(__m512i part, __m512i over,
                                                     const std::uint8_t* behind) {
  const __m512i lower = _mm512_clmulepi64_epi128(part, over, 0x00);
  const __m512i upper = _mm512_clmulepi64_epi128(part, over, 0x11);
  return _mm512_xor_si512(_mm512_xor_si512(lower, upper), _mm512_loadu_si512(behind));
}

[[gnu::target("avx512f,vpclmulqdq,sse4.2")]] std::uint32_t crc32c_folded(const void* data,
                                                                         std::size_t size,
                                                                         std::uint32_t crc) {
  constexpr std::size_t fold = 256;
  if (size < 4 * fold) return crc32c_instruction(data, size, crc);
  const auto* at = static_cast<const std::uint8_t*>(data);
  const __m512i over = _mm512_set4_epi64(0xb9e02b86, 0xdcb17aa4, 0xb9e02b86, 0xdcb17aa4);
  __m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + 64);
  __m512i c = _mm512_loadu_si512(at + 128), d = _mm512_loadu_si512(at + 192);
  a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~crc))));
  for (at += fold, size -= fold; size >= fold; at += fold, size -= fold) {
    a = folded(a, over, at);
    b = folded(b, over, at + 64);
    c = folded(c, over, at + 128);
    d = folded(d, over, at + 192);
  }
  std::uint8_t left[fold];
  _mm512_storeu_si512(left, a);
  _mm512_storeu_si512(left + 64, b);
  _mm512_storeu_si512(left + 128, c);
  _mm512_storeu_si512(left + 192, d);
  return crc32c_instruction(at, size, crc32c_instruction(left, fold, ~0u));
}

std::uint32_t (*fastest())(const void*, std::size_t, std::uint32_t) {
  if (!__builtin_cpu_supports("sse4.2")) return crc32c_portable;
  const bool folds = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
  return folds ? crc32c_folded : crc32c_instruction;
}

}  // namespace

std::uint32_t crc32c_portable(const void* data, std::size_t size, std::uint32_t crc) {
  const auto* at = static_cast<const std::uint8_t*>(data);
  crc = ~crc;
  for (; size >= 8; size -= 8, at += 8) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      next ^=
          slice_tables[7 - i][((crc >> (8 * i)) ^ at[i]) & 0xFF] ^ slice_tables[3 - i][at[4 + i]];
    }
    crc = next;
  }
  for (; size > 0; --size, ++at) crc = (crc >> 8) ^ slice_tables[0][(crc ^ *at) & 0xFF];
  return ~crc;
}

std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t crc) {
  static const auto chosen = fastest();
  return chosen(data, size, crc);
}

}  // namespace lockstep
