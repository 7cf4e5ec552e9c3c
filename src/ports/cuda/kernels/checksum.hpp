#pragma once

#include <cstddef>
#include <cstdint>

/// CRC-32C as arithmetic on polynomials over GF(2), which can be done in any order. A polynomial of
/// degree 31 is a word with the lowest power in its highest bit, as CRC-32C reads bytes.
namespace lockstep::cuda {

constexpr std::uint32_t crc_polynomial = 0x82F63B78u;
constexpr std::uint32_t crc_one = 0x80000000u;  // x^0

/// a * b modulo CRC-32C's polynomial.
constexpr std::uint32_t crc_product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (int power = 0; power < 32; ++power) {
    sum ^= (a & crc_one) ? b : 0;
    a <<= 1;
    b = (b >> 1) ^ ((b & 1) ? crc_polynomial : 0);
  }
  return sum;
}

/// x^(32 * words): what `words` further words do to the sum of those before them.
constexpr std::uint32_t crc_shift(std::size_t words) {
  std::uint32_t shift = crc_one, square = crc_polynomial;  // x^32 modulo the polynomial
  for (; words > 0; words /= 2) {
    if (words % 2 == 1) shift = crc_product(shift, square);
    square = crc_product(square, square);
  }
  return shift;
}

/// Words of 4 bytes that one thread block adds up.
constexpr std::size_t crc_block_words = 4096;

}  // namespace lockstep::cuda
