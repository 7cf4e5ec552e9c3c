#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/image/image.hpp"

namespace lockstep::test {

/// A smooth picture with all colours, height x width x channels.
data::Image picture(std::size_t height, std::size_t width, std::size_t channels);

/// How many pixels share a chroma sample in a JPEG.
struct Chroma {
  int across = 2, down = 2;
};

/// Encoded by libjpeg at quality 95; 4 channels are stored as Adobe's CMYK. `progressive` scans.
std::string jpeg_of(const data::Image& image, bool progressive = false, Chroma chroma = {});
/// Encoded by libpng: 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGB, alpha) channels; `bits` 8, or
/// 16: each value v is then stored as v * 256 + 255 - v.
std::string png_of(const data::Image& image, int bits = 8);
/// Grey, of 16 bits.
std::string png_of_16(std::size_t height, std::size_t width,
                      const std::vector<std::uint16_t>& values);
/// Of `colours` (RGB) in a palette, and indexes of 1, 2, 4 or 8 bits into it; the first colour is
/// said to be transparent.
std::string png_of_palette(std::size_t height, std::size_t width, int bits, bool interlaced,
                           const std::vector<std::uint8_t>& colours,
                           const std::vector<std::uint8_t>& indexes);

/// What libjpeg's defaults make of it.
data::Image decoded_by_libjpeg(const std::string& jpeg);

}  // namespace lockstep::test
