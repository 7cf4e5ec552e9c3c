#include <immintrin.h>

#include "ports/cpu/kernels/kernels_isa.hpp"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")

namespace lockstep::cpu {
namespace {
#include "ports/cpu/kernels/vector.inc"

struct bf16 {
  std::uint16_t bits;
};

INLINE v16 load(const bf16* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return (v16)((i16)_mm512_maskz_cvtepu16_epi32(0xffff, half) << 16);
}
INLINE void store(bf16* p, v16 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh((__m512)v));
}
#include "ports/cpu/kernels/kernels.inc"
}  // namespace

const Kernels kernels_bf16_avx512 = table<bf16>();

}  // namespace lockstep::cpu
