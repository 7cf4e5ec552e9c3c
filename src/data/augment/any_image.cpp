#include "data/augment/any_image.hpp"

#include <cstring>

#include "lockstep/base/rng.hpp"

namespace lockstep::data {

Symmetry symmetry(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row) {
  const auto bits = draw(spec.seed, epoch, row, Draw::symmetry);
  return {.transposed = (bits & 1) != 0, .down = (bits & 2) != 0, .across = (bits & 4) != 0};
}

void turn(const Symmetry& how, std::size_t side, std::size_t pixel_bytes, std::uint8_t* image,
          std::vector<std::uint8_t>& scratch) {
  if (!how.transposed && !how.down && !how.across) return;
  scratch.assign(image, image + side * side * pixel_bytes);
  for (std::size_t y = 0; y < side; ++y)
    for (std::size_t x = 0; x < side; ++x, image += pixel_bytes) {
      const std::size_t line = how.down ? side - 1 - y : y, column = how.across ? side - 1 - x : x;
      const std::size_t from = how.transposed ? column * side + line : line * side + column;
      std::memcpy(image, scratch.data() + from * pixel_bytes, pixel_bytes);
    }
}

std::vector<std::size_t> dropped_channels(const AugmentSpec& spec, std::uint64_t epoch,
                                          std::size_t row, std::size_t channels) {
  constexpr double words = 4294967296.0;  // numbers that a word has
  std::vector<std::size_t> dropped;
  for (std::size_t c = 0; c < channels; ++c) {
    const Philox bits =
        draw4(spec.seed, epoch, row, Draw::channels, static_cast<std::uint32_t>(c / 4));
    if (bits.word[c % 4] < static_cast<double>(spec.channel_dropout) * words) dropped.push_back(c);
  }
  if (dropped.size() == channels) {
    const Philox bits = draw4(spec.seed, epoch, row, Draw::channels, ~0U);
    dropped.erase(dropped.begin() + static_cast<std::ptrdiff_t>(bits.word[0] % channels));
  }
  return dropped;
}

void drop_channels(std::span<const std::size_t> dropped, std::span<const std::uint8_t> fill,
                   std::size_t element_bytes, std::size_t pixels, std::uint8_t* image) {
  for (std::size_t p = 0; p < pixels && !dropped.empty(); ++p, image += fill.size())
    for (const std::size_t channel : dropped)
      std::memcpy(image + channel * element_bytes, fill.data() + channel * element_bytes,
                  element_bytes);
}

}  // namespace lockstep::data
