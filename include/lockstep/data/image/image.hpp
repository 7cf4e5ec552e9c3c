#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// A decoded image: the bytes of elements [height, width, channels].
struct Image {
  std::size_t height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels;
  Element element = Element::u8;
};

/// Pixels of a decodable image's side. A thin image costs much more than its pixels.
inline constexpr std::size_t longest_side = std::size_t{1} << 20;

/// Decodes a JPEG, PNG, WebP or BMP, told apart by their first bytes, to 1 (grey) or 3 (RGB)
/// channels. The pixels are those of Pillow's convert("RGB"): the exact integer DCT and smooth
/// chroma upsampling. CMYK and YCCK JPEGs follow Adobe's inverted convention. Transparency is
/// dropped (the colour under it counts); colour profiles, gamma and EXIF orientation are not
/// applied. `element`: uint8, for which 16-bit PNGs lose their low bytes (the first one is
/// announced, and one of which little would be left is an error), or uint16, which only 16-bit PNGs
/// have. Throws InputError with `name` when the bytes have another format, are damaged or cut off
/// (also where the library would only warn), have more than 2^28 pixels, a side of more than
/// longest_side, or more scans than any program writes.
Image decode_image(std::string_view bytes, const std::string& name, Element element = Element::u8);

/// RGB from grey by repetition; grey from RGB by the luma of ITU-R 601 (Pillow's convert("L")). Of
/// uint8 or uint16.
Image with_channels(Image image, std::size_t channels);

/// Of uint8: stretches to height x width with a triangle filter as wide as the reduction
/// (antialiased bilinear), in fixed point: Pillow's resize(BILINEAR), bit for bit. Where lines
/// would need much more memory than the image and the result (one pixel wide, say), columns are
/// stretched first.
Image resize(const Image& image, std::size_t height, std::size_t width);

/// The size of an image after its shorter side becomes `short_side`, as in torchvision's Resize
/// (the longer side is rounded down).
void resized(std::size_t short_side, std::size_t& height, std::size_t& width);

// The formats of decode_image. All throw InputError naming `name`.
Image decode_jpeg(std::string_view bytes, const std::string& name);
/// The shape of what decode_jpeg() would give, by the JPEG's header alone.
struct ImageShape {
  std::size_t height = 0, width = 0, channels = 0;
};
ImageShape jpeg_shape(std::string_view bytes, const std::string& name);
Image decode_png(std::string_view bytes, const std::string& name, Element element = Element::u8);
/// The channels, 1 or 3, of a PNG of 16 bits a value, transparency apart; 0 of other files.
std::size_t channels_of_16_bits(std::string_view bytes);
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
                     const std::string& name, Element element = Element::u8);

}  // namespace lockstep::data
