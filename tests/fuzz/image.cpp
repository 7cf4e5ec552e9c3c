// Fuzzes JPEG, PNG, WebP and BMP files, and the Exif data of all formats. The first byte says
// whether the rest is decoded, or only its orientation is looked for.
#include <webp/decode.h>
#include <zlib.h>

#include "lockstep/data/image/image.hpp"
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

std::uint32_t number_at(std::string_view file, std::size_t at) {
  std::uint32_t value = 0;
  for (const char byte : file.substr(at, 4)) value = value << 8 | static_cast<std::uint8_t>(byte);
  return value;
}

std::string big(std::uint32_t value) {
  const std::string text = little(value, 4);
  return {text.rbegin(), text.rend()};
}

/// A PNG whose chunks have the checksums of their content, up to where its lengths are wrong.
std::string with_checksums(std::string_view png) {
  std::string file(png);
  for (std::size_t at = 8; at + 12 <= file.size();) {
    const std::size_t length = number_at(file, at);
    if (length > file.size() - at - 12) break;
    const auto* content = reinterpret_cast<const Bytef*>(file.data() + at + 4);
    const auto sum = crc32(0, content, static_cast<uInt>(length + 4));
    file.replace(at + 8 + length, 4, big(static_cast<std::uint32_t>(sum)));
    at += 12 + length;
  }
  return file;
}

/// 5 x 3 pixels. `more`: chunks before the pixels.
std::string png(int bits, int colour, int values, bool interlaced, const std::string& more = "") {
  const auto chunk = [](const std::string& name, const std::string& content) {
    return big(static_cast<std::uint32_t>(content.size())) + name + content + little(0, 4);
  };
  std::string packed(200, '\0');
  const std::string lines(interlaced ? 100 : 3 * (1 + (5 * values * bits + 7) / 8), '\1');
  uLongf bytes = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &bytes,
           reinterpret_cast<const Bytef*>(lines.data()), lines.size());
  packed.resize(bytes);
  const char form[] = {static_cast<char>(bits), static_cast<char>(colour), 0, 0, interlaced};
  return with_checksums("\x89PNG\r\n\x1A\n" +
                        chunk("IHDR", big(5) + big(3) + std::string(form, sizeof form)) + more +
                        chunk("IDAT", packed) + chunk("IEND", ""));
}

data::Image spotted(std::size_t channels) {
  data::Image image{24, 17, channels, std::vector<std::uint8_t>(24 * 17 * channels)};
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<std::uint8_t>(i * i);
  return image;
}

bool is_large(std::string_view file) {
  constexpr std::size_t longest = 2048;
  if (data::looks_like_jpeg(file)) {
    const data::ImageShape shape = data::jpeg_shape(file, "input");
    return std::max(shape.height, shape.width) > longest;
  }
  if (data::looks_like_png(file))
    return file.size() >= 24 && std::max(number_at(file, 16), number_at(file, 20)) > longest;
  WebPBitstreamFeatures about;
  return data::looks_like_webp(file) &&
         WebPGetFeatures(reinterpret_cast<const std::uint8_t*>(file.data()), file.size(), &about) ==
             VP8_STATUS_OK &&
         std::max(about.width, about.height) > static_cast<int>(longest);
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const std::uint32_t bits : {1, 4, 8, 16, 24, 32})
    all.push_back('\0' + bmp(bits, 0, bits <= 8 ? std::string(4u << bits, '\7') : ""));
  all.push_back('\0' + bmp(16, 3, little(0xF800, 4) + little(0x7E0, 4) + little(0x1F, 4)));
  all.push_back('\0' + std::string("BM") + little(0, 8) + little(26, 4) + little(12, 4) +
                little(4, 2) + little(1, 2) + little(1, 2) + little(24, 2) + std::string(12, '\7'));
  all.push_back('\0' + webp());
  for (const std::size_t channels : {1, 3})
    all.push_back('\0' + data::encode_jpeg(spotted(channels), 70, "seed"));
  const std::string palette = big(6) + "PLTE" + "abcdef" + little(0, 4) + big(1) + "tRNS" +
                              std::string(1, '\x60') + little(0, 4);
  const std::string long_chunk = big(0x639C5BFF) + "eXIf" + little(0, 4);
  all.push_back('\0' + png(8, 2, 3, false, long_chunk));
  for (const bool interlaced : {false, true}) {
    all.push_back('\0' + png(8, 2, 3, interlaced));
    all.push_back('\0' + png(16, 6, 4, interlaced));
    all.push_back('\0' + png(16, 0, 1, interlaced));
    for (const int bits : {1, 2, 4, 8}) all.push_back('\0' + png(bits, 3, 1, interlaced, palette));
  }
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
  std::string file(reinterpret_cast<const char*>(bytes.data()) + 1, bytes.size() - 1);
  if (data::looks_like_png(file)) file = with_checksums(file);
  const int orientation = data::exif_orientation(file);
  require_law(orientation >= 1 && orientation <= 8, "an orientation is one of eight");
  if ((bytes[0] & 1) != 0 || is_large(file)) return;
  const data::Image image = data::decode_image(file, "input");
  require_law(image.channels == 1 || image.channels == 3, "an image is grey or RGB");
  require_law(image.pixels.size() == image.height * image.width * image.channels,
              "an image has its pixels");
  const data::Image small = data::resize(image, 9, 14);
  require_law(small.pixels.size() == 9 * 14 * image.channels, "a resized image has its pixels");
  const data::Image turned = data::upright(image, bytes[0] % 8 + 1);
  require_law(turned.pixels.size() == image.pixels.size(), "turning keeps all pixels");
}

}  // namespace lockstep::fuzz
