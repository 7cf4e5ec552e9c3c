#include "data/augment/reverse.hpp"

#include <arm_neon.h>

namespace lockstep::data {

// As on x86 (x86/reverse.cpp): one shuffle for as many whole pixels as 16 bytes hold.
void reverse(const std::uint8_t* end, std::size_t pixels, std::size_t pixel_bytes,
             std::uint8_t* to) {
  if (pixel_bytes > 16) return reverse_by_pixel(end, pixels, pixel_bytes, to);
  const std::size_t together = 16 / pixel_bytes, bytes = together * pixel_bytes;
  const uint8x16_t shuffle = vld1q_u8(reversals[pixel_bytes].data());
  for (; pixels * pixel_bytes >= 16; pixels -= together, end -= bytes, to += bytes)
    vst1q_u8(to, vqtbl1q_u8(vld1q_u8(end - 16), shuffle));
  reverse_by_pixel(end, pixels, pixel_bytes, to);
}

}  // namespace lockstep::data
