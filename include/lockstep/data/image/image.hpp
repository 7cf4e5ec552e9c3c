#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// A decoded image: pixels [height, width, channels], uint8.
struct Image {
  std::size_t height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels;
};

/// Pixels of a decodable image's side. A thin image costs much more than its pixels.
inline constexpr std::size_t longest_side = std::size_t{1} << 20;

/// Decodes a JPEG, PNG, WebP or BMP, told apart by their first bytes, to 1 (grey) or 3 (RGB)
/// channels. The pixels are those of Pillow's convert("RGB"): the exact integer DCT and smooth
/// chroma upsampling. CMYK and YCCK JPEGs follow Adobe's inverted convention. Transparency is
/// dropped (the colour under it counts); colour profiles, gamma and EXIF orientation are not
/// applied. 16-bit PNGs lose their low bytes, and the first one is announced; one of which little
/// would be left is an error. Throws InputError with `name` when the bytes have another format, are
/// damaged or cut off (also where the library would only warn), have more than 2^28 pixels, a side
/// of more than longest_side, or more scans than any program writes.
Image decode_image(std::string_view bytes, const std::string& name);

/// RGB from grey by repetition; grey from RGB by the luma of ITU-R 601 (Pillow's convert("L")).
Image with_channels(Image image, std::size_t channels);

/// Stretches to height x width with a triangle filter as wide as the reduction (antialiased
/// bilinear), in fixed point: Pillow's resize(BILINEAR), bit for bit. Where lines would need much
/// more memory than the image and the result (one pixel wide, say), columns are stretched first.
Image resize(const Image& image, std::size_t height, std::size_t width);

/// The size of an image after its shorter side becomes `short_side`, as in torchvision's Resize
/// (the longer side is rounded down).
void resized(std::size_t short_side, std::size_t& height, std::size_t& width);

}  // namespace lockstep::data
