#include "data/augment/reverse.hpp"

#include <tmmintrin.h>

namespace lockstep::data {
namespace {

// Reverses as many whole pixels as 16 bytes hold with one shuffle. They are loaded as the last
// bytes of the register and stored as its first; the next store overwrites the bytes after them. So
// both ends stay within the line as long as 16 bytes of it are left.
[[gnu::target("ssse3")]] void reverse_by_register(const std::uint8_t* end, std::size_t pixels,
                                                  std::size_t pixel_bytes, std::uint8_t* to) {
  if (pixel_bytes > 16) return reverse_by_pixel(end, pixels, pixel_bytes, to);
  const std::size_t together = 16 / pixel_bytes, bytes = together * pixel_bytes;
  const auto* order = reinterpret_cast<const __m128i*>(reversals[pixel_bytes].data());
  const __m128i shuffle = _mm_loadu_si128(order);
  for (; pixels * pixel_bytes >= 16; pixels -= together, end -= bytes, to += bytes) {
    const __m128i line = _mm_loadu_si128(reinterpret_cast<const __m128i*>(end - 16));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi8(line, shuffle));
  }
  reverse_by_pixel(end, pixels, pixel_bytes, to);
}

}  // namespace

void reverse(const std::uint8_t* end, std::size_t pixels, std::size_t pixel_bytes,
             std::uint8_t* to) {
  static const auto chosen =
      __builtin_cpu_supports("ssse3") ? reverse_by_register : reverse_by_pixel;
  chosen(end, pixels, pixel_bytes, to);
}

}  // namespace lockstep::data
