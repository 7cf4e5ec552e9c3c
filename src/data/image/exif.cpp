#include <algorithm>

#include "lockstep/data/image/image_codecs.hpp"

namespace lockstep::data {
namespace {

/// Numbers of a file that may be cut off anywhere: what is not there is 0.
struct Numbers {
  std::string_view bytes;
  bool big_endian = true;

  std::uint32_t at(std::size_t place, std::size_t count) const {
    if (place > bytes.size() || bytes.size() - place < count) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto byte = static_cast<std::uint8_t>(bytes[place + i]);
      value |= std::uint32_t{byte} << 8 * (big_endian ? count - 1 - i : i);
    }
    return value;
  }
};

std::string_view from(std::string_view bytes, std::size_t place, std::size_t count) {
  return place > bytes.size() ? std::string_view() : bytes.substr(place, count);
}

/// The segment of a JPEG that begins with "Exif": ITU-T T.81, annex B, and Exif 2.3, 4.7.
std::string_view exif_of_jpeg(std::string_view file) {
  constexpr std::uint32_t exif_segment = 0xFFE1, start_of_scan = 0xFFDA;
  constexpr std::string_view name("Exif\0\0", 6);
  const Numbers numbers{file};
  for (std::size_t at = 2;;) {
    const std::uint32_t marker = numbers.at(at, 2), length = numbers.at(at + 2, 2);
    if (marker < 0xFF00 || marker == start_of_scan || length < 2) return {};
    const std::string_view content = from(file, at + 4, length - 2);
    if (marker == exif_segment && content.starts_with(name)) return content.substr(name.size());
    at += 2 + length;
  }
}

/// The chunk eXIf of a PNG (length, name, content, checksum).
std::string_view exif_of_png(std::string_view file) {
  const Numbers numbers{file};
  for (std::size_t at = 8; from(file, at + 4, 4).size() == 4;) {
    const std::size_t length = numbers.at(at, 4);
    if (from(file, at + 4, 4) == "eXIf") return from(file, at + 8, length);
    at += 12 + length;
  }
  return {};
}

/// The chunk EXIF of a WebP (name, length, content, padded to 2 bytes).
std::string_view exif_of_webp(std::string_view file) {
  const Numbers numbers{file, false};
  for (std::size_t at = 12; from(file, at, 4).size() == 4;) {
    const std::size_t length = numbers.at(at + 4, 4);
    if (from(file, at, 4) == "EXIF") {
      std::string_view content = from(file, at + 8, length);
      if (content.starts_with("Exif"))
        content.remove_prefix(std::min<std::size_t>(6, content.size()));
      return content;
    }
    at += 8 + length + length % 2;
  }
  return {};
}

}  // namespace

int exif_orientation(std::string_view file) {
  constexpr std::uint32_t orientation_tag = 0x112, most = 8;
  const std::string_view exif = looks_like_jpeg(file)   ? exif_of_jpeg(file)
                                : looks_like_webp(file) ? exif_of_webp(file)
                                : looks_like_png(file)  ? exif_of_png(file)
                                                        : std::string_view();
  if (!exif.starts_with("MM") && !exif.starts_with("II")) return 1;
  // TIFF 6.0: a directory of entries of 12 bytes (tag, type, count, value).
  const Numbers numbers{exif, exif.starts_with("MM")};
  const std::size_t directory = numbers.at(4, 4), entries = numbers.at(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + 12 * i;
    if (numbers.at(entry, 2) != orientation_tag) continue;
    const std::uint32_t value = numbers.at(entry + 8, 2);
    return value >= 1 && value <= most ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image upright(const Image& image, int orientation) {
  if (orientation == 1) return image;
  // 2 to 4 mirror and turn by half; 5 to 8 also exchange lines and columns.
  const bool exchanged = orientation >= 5;
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_below =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image out{.height = exchanged ? image.width : image.height,
            .width = exchanged ? image.height : image.width,
            .channels = image.channels,
            .pixels = std::vector<std::uint8_t>(image.pixels.size())};
  std::uint8_t* to = out.pixels.data();
  for (std::size_t y = 0; y < out.height; ++y)
    for (std::size_t x = 0; x < out.width; ++x, to += image.channels) {
      const std::size_t row = exchanged ? x : y, column = exchanged ? y : x;
      const std::size_t line = from_below ? image.height - 1 - row : row;
      const std::size_t place = from_right ? image.width - 1 - column : column;
      const std::uint8_t* pixel = &image.pixels[(line * image.width + place) * image.channels];
      std::copy_n(pixel, image.channels, to);
    }
  return out;
}

}  // namespace lockstep::data
