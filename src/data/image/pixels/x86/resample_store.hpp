#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "data/image/pixels/resample_kernels.hpp"

namespace lockstep::data {

/// Turns four columns of four lines' pixels into four pixels of each line, writing 16 bytes to
/// each.
[[gnu::target("ssse3")]] inline void store_four(__m128i a, __m128i b, __m128i c, __m128i d,
                                                std::size_t channels,
                                                std::uint8_t* const (&to)[resample_lines],
                                                std::size_t at) {
  const __m128i kept =
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(resample_kept[channels].data()));
  const __m128i ab = _mm_unpacklo_epi32(a, b), ab_below = _mm_unpackhi_epi32(a, b);
  const __m128i cd = _mm_unpacklo_epi32(c, d), cd_below = _mm_unpackhi_epi32(c, d);
  const __m128i lines[resample_lines] = {_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd),
                                         _mm_unpacklo_epi64(ab_below, cd_below),
                                         _mm_unpackhi_epi64(ab_below, cd_below)};
  for (std::size_t line = 0; line < resample_lines; ++line)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to[line] + at),
                     _mm_shuffle_epi8(lines[line], kept));
}

}  // namespace lockstep::data
