#include <immintrin.h>

#include "base/crc32c_tables.hpp"
#include "lockstep/base/crc32c.hpp"

#define CRC_TARGET "sse4.2"

namespace lockstep {
namespace {

[[gnu::target(CRC_TARGET), gnu::always_inline]] inline std::uint64_t add_word(std::uint64_t crc,
                                                                              std::uint64_t word) {
  return _mm_crc32_u64(crc, word);
}

[[gnu::target(CRC_TARGET), gnu::always_inline]] inline std::uint32_t add_byte(std::uint32_t crc,
                                                                              std::uint8_t byte) {
  return _mm_crc32_u8(crc, byte);
}

#include "base/crc32c_lanes.inc"

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

}  // namespace

Crc32c fastest_crc32c() {
  if (!__builtin_cpu_supports("sse4.2")) return crc32c_portable;
  const bool folds = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
  return folds ? crc32c_folded : crc32c_instruction;
}

}  // namespace lockstep
