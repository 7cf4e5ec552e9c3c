// Fuzzes WebP and BMP files, and the Exif data of all formats. The first byte says whether the rest
// is decoded, or only its orientation is looked for.
#include <webp/decode.h>

#include "lockstep/data/image/image_codecs.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {
namespace {

std::string little(std::uint32_t value, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += i < 4 ? static_cast<char>(value >> 8 * i) : '\0';
  return text;
}

std::string bmp(std::uint32_t bits, std::uint32_t compression, const std::string& tables) {
  const auto start = static_cast<std::uint32_t>(54 + tables.size());
  return "BM" + little(0, 8) + little(start, 4) + little(40, 4) + little(5, 4) + little(3, 4) +
         little(1, 2) + little(bits, 2) + little(compression, 4) + little(0, 20) + tables +
         std::string(3 * (5 * bits + 31) / 32 * 4, '\1');
}

/// 1 x 1 pixels, lossless.
std::string webp() {
  const std::string content("\x2F\0\0\0\0\x07\x50\xE2\xF1\x8F\xFE\x07", 12);
  return "RIFF" + little(static_cast<std::uint32_t>(12 + content.size()), 4) + "WEBPVP8L" +
         little(static_cast<std::uint32_t>(content.size()), 4) + content;
}

std::string exif() {
  return "II*" + std::string(1, '\0') + little(8, 4) + little(1, 2) + little(0x112, 2) +
         little(3, 2) + little(1, 4) + little(6, 4);
}

bool is_large(std::string_view file) {
  constexpr int longest = 2048;
  WebPBitstreamFeatures about;
  return data::looks_like_webp(file) &&
         WebPGetFeatures(reinterpret_cast<const std::uint8_t*>(file.data()), file.size(), &about) ==
             VP8_STATUS_OK &&
         (about.width > longest || about.height > longest);
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const std::uint32_t bits : {1, 4, 8, 16, 24, 32})
    all.push_back('\0' + bmp(bits, 0, bits <= 8 ? std::string(4u << bits, '\7') : ""));
  all.push_back('\0' + bmp(16, 3, little(0xF800, 4) + little(0x7E0, 4) + little(0x1F, 4)));
  all.push_back('\0' + webp());
  const std::string data = exif();
  const std::string segment = std::string("Exif\0\0", 6) + data;
  all.push_back("\1\xFF\xD8\xFF\xE1" + std::string(1, '\0') +
                static_cast<char>(segment.size() + 2) + segment + "\xFF\xDA");
  const auto length = static_cast<std::uint32_t>(data.size());
  all.push_back("\1RIFF" + little(0, 4) + "WEBPEXIF" + little(length, 4) + data);
  all.push_back("\1\x89PNG\r\n\x1A\n" + std::string(3, '\0') + static_cast<char>(length) + "eXIf" +
                data + little(0, 4));
  return all;
}

void one(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  const std::string_view file(reinterpret_cast<const char*>(bytes.data()) + 1, bytes.size() - 1);
  const int orientation = data::exif_orientation(file);
  require_law(orientation >= 1 && orientation <= 8, "an orientation is one of eight");
  const bool decodes = file.starts_with("BM") || data::looks_like_webp(file);
  if ((bytes[0] & 1) != 0 || !decodes || is_large(file)) return;
  const data::Image image = data::decode_image(file, "input");
  require_law(image.pixels.size() == image.height * image.width * 3, "an image has its pixels");
  const data::Image turned = data::upright(image, bytes[0] % 8 + 1);
  require_law(turned.pixels.size() == image.pixels.size(), "turning keeps all pixels");
}

}  // namespace lockstep::fuzz
