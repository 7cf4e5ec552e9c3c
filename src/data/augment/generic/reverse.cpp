#include "data/augment/reverse.hpp"

namespace lockstep::data {

void reverse(const std::uint8_t* end, std::size_t pixels, std::size_t pixel_bytes,
             std::uint8_t* to) {
  reverse_by_pixel(end, pixels, pixel_bytes, to);
}

}  // namespace lockstep::data
