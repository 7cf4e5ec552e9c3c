#include <cstring>

#include <immintrin.h>

#include "data/image/pixels/x86/pixel_sets.hpp"
#include "data/image/pixels/x86/resample_store.hpp"

#pragma GCC target("avx2,fma")

namespace lockstep::data {
namespace {

struct Lanes {
  __m256 low, high;
  static Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Lanes of_bytes(const std::uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
  }
  static Lanes of_floats(const float* from) {
    return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
  }
  void add(const Lanes& other, float weight) {
    low = _mm256_fmadd_ps(other.low, _mm256_set1_ps(weight), low);
    high = _mm256_fmadd_ps(other.high, _mm256_set1_ps(weight), high);
  }
  void scale_and_shift(float scale, float shift) {
    low = _mm256_fmadd_ps(low, _mm256_set1_ps(scale), _mm256_set1_ps(shift));
    high = _mm256_fmadd_ps(high, _mm256_set1_ps(scale), _mm256_set1_ps(shift));
  }
  void subtract(float number) {
    low = _mm256_sub_ps(low, _mm256_set1_ps(number));
    high = _mm256_sub_ps(high, _mm256_set1_ps(number));
  }
  void store_quarters(float* to) const {
    _mm_storeu_ps(to, _mm256_castps256_ps128(low));
    _mm_storeu_ps(to + resample_lanes, _mm256_extractf128_ps(low, 1));
    _mm_storeu_ps(to + 2 * resample_lanes, _mm256_castps256_ps128(high));
    _mm_storeu_ps(to + 3 * resample_lanes, _mm256_extractf128_ps(high, 1));
  }
  __m128i bytes() const {
    const __m256i first = _mm256_cvttps_epi32(low), second = _mm256_cvttps_epi32(high);
    const __m128i start =
        _mm_packs_epi32(_mm256_castsi256_si128(first), _mm256_extracti128_si256(first, 1));
    const __m128i end =
        _mm_packs_epi32(_mm256_castsi256_si128(second), _mm256_extracti128_si256(second, 1));
    return _mm_packus_epi16(start, end);
  }
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

const ResampleKernels resample_avx2 = {blend_lines, blend_columns};

}  // namespace lockstep::data
