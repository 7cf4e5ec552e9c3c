#include "lockstep/data/augment/normalise.hpp"

namespace lockstep::data {
namespace {

// For whole pixels of 1 to 4 channels: a fixed length lets the compiler use registers.
constexpr std::size_t pixel_period = 48;

__attribute__((target_clones("avx512f", "avx2", "default"))) void convert(
    const std::uint8_t* from, std::size_t count, const float* __restrict scale,
    const float* __restrict shift, float* __restrict to) {
  std::size_t at = 0;
  for (; at + pixel_period <= count; at += pixel_period)
    for (std::size_t i = 0; i < pixel_period; ++i)
      to[at + i] = static_cast<float>(from[at + i]) * scale[i] + shift[i];
  for (std::size_t i = 0; at + i < count; ++i)
    to[at + i] = static_cast<float>(from[at + i]) * scale[i] + shift[i];
}

}  // namespace

void normalise(const DataSetInfo& info, std::span<const std::uint8_t> pixels, float* to) {
  float scale[pixel_period], shift[pixel_period];
  for (std::size_t i = 0; i < pixel_period; ++i) {
    const std::size_t c = i % info.channels;
    scale[i] = 1 / (255 * info.stddev[c]);
    shift[i] = -info.mean[c] / info.stddev[c];
  }
  convert(pixels.data(), pixels.size(), scale, shift, to);
}

}  // namespace lockstep::data
