#pragma once

#include <string>
#include <string_view>

#include "lockstep/data/image.hpp"

namespace lockstep::data {

// The two formats of decode_image. Both throw InputError naming `name`.
Image decode_jpeg(std::string_view bytes, const std::string& name);
Image decode_png(std::string_view bytes, const std::string& name);

/// True when the bytes begin like a JPEG.
bool looks_like_jpeg(std::string_view bytes);

/// A JPEG of an image of 1 or 3 channels, with chroma at half resolution and Huffman tables made
/// for it. The same image gives the same bytes. Throws InputError naming `name` when it is too
/// large.
std::string encode_jpeg(const Image& image, int quality, const std::string& name);

/// Room for the pixels; rejects sizes that only a damaged header claims.
Image allocate_image(std::size_t height, std::size_t width, std::size_t channels,
                     const std::string& name);

}  // namespace lockstep::data
