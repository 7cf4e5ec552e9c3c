#pragma once

#include <string>
#include <string_view>

#include "lockstep/data/image/image.hpp"

namespace lockstep::data {

// The formats of decode_image. All throw InputError naming `name`.
Image decode_jpeg(std::string_view bytes, const std::string& name);
/// The shape of what decode_jpeg() would give, by the JPEG's header alone.
struct ImageShape {
  std::size_t height = 0, width = 0, channels = 0;
};
ImageShape jpeg_shape(std::string_view bytes, const std::string& name);
Image decode_png(std::string_view bytes, const std::string& name);
/// Not animated. Transparency is dropped.
Image decode_webp(std::string_view bytes, const std::string& name);
/// Not compressed, with 1 to 32 bits a pixel. Always 3 channels.
Image decode_bmp(std::string_view bytes, const std::string& name);

/// True when the bytes begin like this format.
bool looks_like_jpeg(std::string_view bytes);
bool looks_like_png(std::string_view bytes);
bool looks_like_webp(std::string_view bytes);

/// The orientation in the Exif data of a JPEG, PNG or WebP: 1 to 8; 1 (upright) where there is none
/// that is sound.
int exif_orientation(std::string_view file);

/// The image as it is to be seen, if its file has this orientation.
Image upright(const Image& image, int orientation);

/// A JPEG of an image of 1 or 3 channels, with chroma at half resolution and Huffman tables made
/// for it. The same image gives the same bytes. Throws InputError naming `name` when it is too
/// large.
std::string encode_jpeg(const Image& image, int quality, const std::string& name);

/// Throws InputError for a size that only a damaged header claims.
void require_decodable(std::size_t height, std::size_t width, const std::string& name);
/// Room for the pixels of a decodable image.
Image allocate_image(std::size_t height, std::size_t width, std::size_t channels,
                     const std::string& name);

}  // namespace lockstep::data
