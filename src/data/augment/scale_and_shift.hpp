#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::data {

// For whole pixels of 1 to 4 channels: a fixed length lets the compiler use registers.
inline constexpr std::size_t pixel_period = 48;

/// to[i] = from[i] * scale[i % pixel_period] + shift[i % pixel_period], as fast as this processor
/// can; each kind of processor has its own source.
void scale_and_shift(const std::uint8_t* from, std::size_t count, const float* scale,
                     const float* shift, float* to);

}  // namespace lockstep::data
