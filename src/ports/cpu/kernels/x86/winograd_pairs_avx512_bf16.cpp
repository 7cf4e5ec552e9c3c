#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "ports/cpu/kernels/x86/x86_kernels.hpp"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")

namespace lockstep::cpu {
namespace {
#include "ports/cpu/kernels/vector.inc"

#include "ports/cpu/kernels/winograd/winograd_tiles.inc"
#include "ports/cpu/kernels/x86/bf16.inc"

#include "ports/cpu/kernels/winograd/winograd.inc"
#include "ports/cpu/kernels/winograd/winograd_forms.inc"

/// Words of two bf16, whose products are added to a float at once.
struct Pairs {
  using Value = bf16;
  using Word = std::uint32_t;
  using Vector = __m512bh;
  static constexpr std::size_t per_word = 2;
  static INLINE Vector load_words(const Word* p) { return (Vector)_mm512_loadu_si512(p); }
  static INLINE v16 add_product(v16 sum, Word a, Vector b) {
    return (v16)_mm512_dpbf16_ps((__m512)sum, (Vector)_mm512_set1_epi32(static_cast<int>(a)), b);
  }
  static INLINE i16 rounded(v16 v) {
    return (i16)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)_mm512_cvtneps_pbh((__m512)v));
  }
  static INLINE void store_words(Word* p, v16 first, v16 second) {
    _mm512_storeu_si512(p, (__m512i)(rounded(first) | rounded(second) << 16));
  }
};
}  // namespace

const WinogradKernels winograd_pairs_avx512_bf16 = winograd_table<Two, Pairs, bf16>();

}  // namespace lockstep::cpu
