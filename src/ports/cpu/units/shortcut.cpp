#include "ports/cpu/units/shortcut.hpp"

#include <cstring>

namespace lockstep::cpu {

Shortcut::Shortcut(const Context& c, const Unit& unit, const Chunk& chunk)
    : from_(c.network.nodes[c.units[*unit.skip].node].shape),
      to_(c.network.nodes[unit.node].shape),
      rows_(chunk.count),
      stride_(unit.stride),
      value_bytes_(bytes_of(c.storage)) {}

template <class Copy>
void Shortcut::each_pixel_of_line(std::size_t n, std::size_t y, const Copy& copy) const {
  const std::size_t wide = from_.channels * value_bytes_, deep = to_.channels * value_bytes_;
  const std::size_t offset = (to_.channels - from_.channels) / 2 * value_bytes_;
  for (std::size_t x = 0; x < to_.width; ++x)
    copy(((n * from_.height + y * stride_) * from_.width + x * stride_) * wide,
         ((n * to_.height + y) * to_.width + x) * deep + offset, wide);
}

template <class Copy>
void Shortcut::each_pixel(const Copy& copy) const {
  for (std::size_t n = 0; n < rows_; ++n)
    for (std::size_t y = 0; y < to_.height; ++y) each_pixel_of_line(n, y, copy);
}

void Shortcut::pad(const std::byte* wide, std::byte* deep) const {
  std::memset(deep, 0, rows_ * to_.count() * value_bytes_);
  each_pixel(
      [&](std::size_t w, std::size_t d, std::size_t n) { std::memcpy(deep + d, wide + w, n); });
}

void Shortcut::pad(const Band& band, const std::byte* wide, std::byte* deep) const {
  std::memset(deep + (band.image * to_.height + band.first) * line_bytes(), 0,
              band.count * line_bytes());
  for (std::size_t y = band.first; y < band.first + band.count; ++y)
    each_pixel_of_line(band.image, y, [&](std::size_t w, std::size_t d, std::size_t n) {
      std::memcpy(deep + d, wide + w, n);
    });
}

void Shortcut::unpad(const std::byte* deep, std::byte* wide) const {
  std::memset(wide, 0, rows_ * from_.count() * value_bytes_);
  each_pixel(
      [&](std::size_t w, std::size_t d, std::size_t n) { std::memcpy(wide + w, deep + d, n); });
}

}  // namespace lockstep::cpu
