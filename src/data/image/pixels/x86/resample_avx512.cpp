#include <cstring>

#include <immintrin.h>

#include "data/image/pixels/x86/pixel_sets.hpp"
#include "data/image/pixels/x86/resample_store.hpp"

#pragma GCC target("avx512f")
// g++ 12 warns about undefined registers in intrinsics that it defines itself (GCC bug 105593).
// NOLINTNEXTLINE(clang-diagnostic-unknown-warning-option): clang has no such warning
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

namespace lockstep::data {
namespace {

struct Lanes {
  __m512 all;
  static Lanes zero() { return {_mm512_setzero_ps()}; }
  static Lanes of_bytes(const std::uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))};
  }
  static Lanes of_floats(const float* from) { return {_mm512_loadu_ps(from)}; }
  void add(const Lanes& other, float weight) {
    all = _mm512_fmadd_ps(other.all, _mm512_set1_ps(weight), all);
  }
  void scale_and_shift(float scale, float shift) {
    all = _mm512_fmadd_ps(all, _mm512_set1_ps(scale), _mm512_set1_ps(shift));
  }
  void subtract(float number) { all = _mm512_sub_ps(all, _mm512_set1_ps(number)); }
  void store_quarters(float* to) const {
    _mm_storeu_ps(to, _mm512_castps512_ps128(all));
    _mm_storeu_ps(to + resample_lanes, _mm512_extractf32x4_ps(all, 1));
    _mm_storeu_ps(to + 2 * resample_lanes, _mm512_extractf32x4_ps(all, 2));
    _mm_storeu_ps(to + 3 * resample_lanes, _mm512_extractf32x4_ps(all, 3));
  }
  __m128i bytes() const { return _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(all)); }
  void store_bytes(std::uint8_t* to) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes());
  }
  static void store_lines(const Lanes (&columns)[4], std::size_t channels,
                          std::uint8_t* const (&to)[resample_lines], std::size_t at) {
    store_four(columns[0].bytes(), columns[1].bytes(), columns[2].bytes(), columns[3].bytes(),
               channels, to, at);
  }
};

#include "data/image/pixels/resample_kernels.inc"

}  // namespace

const ResampleKernels resample_avx512 = {blend_lines, blend_columns};

}  // namespace lockstep::data
