#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lockstep::data {

/// Writes a reversed line of whole pixels forwards from `to`, reading backwards from `end`, as fast
/// as this processor can; each kind of processor has its own source.
void reverse(const std::uint8_t* end, std::size_t pixels, std::size_t pixel_bytes,
             std::uint8_t* to);

/// The same on any processor.
inline void reverse_by_pixel(const std::uint8_t* end, std::size_t pixels, std::size_t pixel_bytes,
                             std::uint8_t* to) {
  for (; pixels > 0; --pixels, to += pixel_bytes) {
    end -= pixel_bytes;
    std::memcpy(to, end, pixel_bytes);
  }
}

/// For each number of bytes of a pixel: the shuffle that reverses the whole pixels at the end of a
/// register and puts them at its beginning.
inline constexpr auto reversals = [] {
  std::array<std::array<std::uint8_t, 16>, 17> orders{};
  for (std::size_t pixel_bytes = 1; pixel_bytes <= 16; ++pixel_bytes) {
    const std::size_t pixels = 16 / pixel_bytes, bytes = pixels * pixel_bytes;
    for (std::size_t i = 0; i < bytes; ++i) {
      const std::size_t pixel = pixels - 1 - i / pixel_bytes;
      orders[pixel_bytes][i] =
          static_cast<std::uint8_t>(16 - bytes + pixel * pixel_bytes + i % pixel_bytes);
    }
  }
  return orders;
}();

}  // namespace lockstep::data
