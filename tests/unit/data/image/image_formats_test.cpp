#include <webp/encode.h>
#include <webp/types.h>

#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/data/image/image.hpp"
#include "tests/unit/data/image_fixture.hpp"

using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

std::string little(std::uint32_t value, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

std::string big(std::uint32_t value, std::size_t bytes) {
  const std::string text = little(value, bytes);
  return {text.rbegin(), text.rend()};
}

std::string webp_of(const Image& image) {
  std::uint8_t* bytes = nullptr;
  const std::size_t count = WebPEncodeLosslessRGB(
      image.pixels.data(), static_cast<int>(image.width), static_cast<int>(image.height),
      static_cast<int>(3 * image.width), &bytes);
  std::string file(reinterpret_cast<const char*>(bytes), count);
  WebPFree(bytes);
  return file;
}

/// A BMP with Windows' header: `height` as stored (negative: from the top), then `tables` (masks or
/// palette), then lines.
std::string bmp(std::int32_t width, std::int32_t height, std::uint32_t bits,
                std::uint32_t compression, const std::string& tables, const std::string& lines,
                std::uint32_t colours = 0) {
  const auto start = static_cast<std::uint32_t>(54 + tables.size());
  return "BM" + little(0, 8) + little(start, 4) + little(40, 4) +
         little(static_cast<std::uint32_t>(width), 4) +
         little(static_cast<std::uint32_t>(height), 4) + little(1, 2) + little(bits, 2) +
         little(compression, 4) + little(0, 12) + little(colours, 4) + little(0, 4) + tables +
         lines;
}

/// The pixels with blue first, each with `padding` zeros, lines padded to 4 bytes.
std::string blue_first(const Image& image, std::size_t padding, bool from_top) {
  std::string lines;
  for (std::size_t i = 0; i < image.height; ++i) {
    const std::size_t y = from_top ? i : image.height - 1 - i;
    for (std::size_t x = 0; x < image.width; ++x) {
      const std::uint8_t* pixel = &image.pixels[(y * image.width + x) * 3];
      for (int c = 2; c >= 0; --c) lines += static_cast<char>(pixel[c]);
      lines += std::string(padding, '\0');
    }
    while (lines.size() % 4 != 0) lines += '\0';
  }
  return lines;
}

/// Exif data with an orientation, in either byte order.
std::string exif(int orientation, bool big_endian) {
  const auto number = [&](std::uint32_t value, std::size_t bytes) {
    return big_endian ? big(value, bytes) : little(value, bytes);
  };
  const std::string entry = number(0x112, 2) + number(3, 2) + number(1, 4) +
                            number(static_cast<std::uint32_t>(orientation), 2) + number(0, 2);
  return (big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) + number(2, 2) +
         number(0x10F, 2) + number(2, 2) + number(1, 4) + number(0, 4) + entry;
}

std::string jpeg_with(const std::string& exif_data) {
  const std::string jpeg = jpeg_of(picture(8, 8, 3));
  const std::string content = std::string("Exif\0\0", 6) + exif_data;
  return jpeg.substr(0, 2) + "\xFF\xE1" + big(static_cast<std::uint32_t>(content.size() + 2), 2) +
         content + jpeg.substr(2);
}

}  // namespace

TEST_CASE("a lossless WebP decodes to its pixels; cut off or changed it is an error that names it",
          "[image]") {
  const Image image = picture(13, 17, 3);
  const std::string file = webp_of(image);
  const Image got = decode_image(file, "a.webp");
  CHECK(got.pixels == image.pixels);
  CHECK(got.height == 13);
  for (std::size_t bytes = 12; bytes < file.size(); bytes += 7)
    REQUIRE_THROWS_WITH(decode_image(file.substr(0, bytes), "a.webp"), Contains("a.webp: "));
  // The extended header with the flag of an animation.
  const std::string content = "WEBPVP8X" + little(10, 4) + little(2, 4) + little(7, 3) +
                              little(7, 3) + "ANIM" + little(6, 4) + little(0, 6);
  CHECK_THROWS_WITH(
      decode_image("RIFF" + little(static_cast<std::uint32_t>(content.size()), 4) + content,
                   "a.webp"),
      Contains("a.webp: is an animated WebP"));
}

TEST_CASE("a PNG's pixels have the colours of its palette; one beyond it is an error", "[image]") {
  constexpr std::size_t height = 11, width = 13;  // interlaced, each pass has some of the pixels
  for (const int bits : {1, 2, 4, 8})
    for (const bool interlaced : {false, true}) {
      CAPTURE(bits, interlaced);
      const std::size_t colours = (std::size_t{1} << bits) - 1;  // one less than the bits can name
      std::vector<std::uint8_t> palette, indexes, want;
      for (std::size_t i = 0; i < 3 * colours; ++i)
        palette.push_back(static_cast<std::uint8_t>(255 - 7 * i));
      for (std::size_t i = 0; i < height * width; ++i) {
        const std::size_t index = i * i % colours;
        indexes.push_back(static_cast<std::uint8_t>(index));
        for (std::size_t c = 0; c < 3; ++c) want.push_back(palette[3 * index + c]);
      }
      const auto decoded = [&] {
        return decode_image(png_of_palette(height, width, bits, interlaced, palette, indexes),
                            "a.png");
      };
      const Image image = decoded();
      CHECK(image.channels == 3);
      CHECK(image.pixels == want);
      for (const std::size_t at : {std::size_t{0}, width + 1, height * width - 1}) {
        const std::uint8_t sound = std::exchange(indexes[at], static_cast<std::uint8_t>(colours));
        CHECK_THROWS_WITH(decoded(), "a.png: broken PNG: a pixel's colour is not in its palette");
        indexes[at] = sound;
      }
    }
}

TEST_CASE("a BMP whose header claims no pixels is an error, in each kind of header", "[image]") {
  // OS/2's: sizes of 16 bits.
  const auto core = [](std::uint32_t width, std::uint32_t height) {
    return "BM" + little(0, 8) + little(26, 4) + little(12, 4) + little(width, 2) +
           little(height, 2) + little(1, 2) + little(24, 2) + std::string(16, '\7');
  };
  CHECK(decode_image(core(4, 1), "a.bmp").pixels == std::vector<std::uint8_t>(12, 7));
  for (const std::string& file :
       {core(0, 4), core(4, 0), bmp(0, 4, 24, 0, "", std::string(16, '\7')),
        bmp(4, 0, 24, 0, "", ""), bmp(-4, 1, 24, 0, "", std::string(16, '\7'))})
    CHECK_THROWS_WITH(decode_image(file, "a.bmp"),
                      Contains("a.bmp: broken BMP: its header claims no pixels"));
  std::string early = core(4, 1);
  early[10] = 14;
  CHECK_THROWS_WITH(decode_image(early, "a.bmp"), Contains("its pixels begin inside its header"));
}

TEST_CASE("a BMP of 24 or 32 bits decodes to its pixels, from the top or the bottom", "[image]") {
  const Image image = picture(5, 7, 3);
  const auto decoded = [&](const std::string& file) { return decode_image(file, "a.bmp").pixels; };
  CHECK(decoded(bmp(7, 5, 24, 0, "", blue_first(image, 0, false))) == image.pixels);
  CHECK(decoded(bmp(7, -5, 24, 0, "", blue_first(image, 0, true))) == image.pixels);
  CHECK(decoded(bmp(7, 5, 32, 0, "", blue_first(image, 1, false))) == image.pixels);
  // Red and blue change places by the masks.
  const std::string masks = little(0xFF, 4) + little(0xFF00, 4) + little(0xFF0000, 4);
  std::vector<std::uint8_t> swapped = image.pixels;
  for (std::size_t i = 0; i < swapped.size(); i += 3) std::swap(swapped[i], swapped[i + 2]);
  CHECK(decoded(bmp(7, 5, 32, 3, masks, blue_first(image, 1, false))) == swapped);
}

TEST_CASE("a BMP of fewer bits has the colours of its palette, or of 5 bits each", "[image]") {
  const std::string palette = little(0x102030, 4) + little(0xFFFFFF, 4) + little(0x0000FF, 4);
  const std::vector<std::uint8_t> want{16, 32, 48, 255, 255, 255, 0, 0, 255};
  CHECK(decode_image(bmp(3, 1, 8, 0, palette, std::string("\0\1\2\0", 4), 3), "a").pixels == want);
  CHECK(decode_image(bmp(3, 1, 4, 0, palette, std::string("\x01\x20\0\0", 4), 3), "a").pixels ==
        want);
  CHECK(decode_image(bmp(3, 1, 1, 0, palette.substr(0, 8), std::string("\x40\0\0\0", 4), 2), "a")
            .pixels == std::vector<std::uint8_t>{16, 32, 48, 255, 255, 255, 16, 32, 48});
  const std::string two = little(0x7C00 | 16, 2) + little(0x3E0, 2);
  CHECK(decode_image(bmp(2, 1, 16, 0, "", two), "a").pixels ==
        std::vector<std::uint8_t>{255, 0, 131, 0, 255, 0});
}

TEST_CASE("a BMP that is cut off, compressed or contradicts itself is an error that names it",
          "[image]") {
  const std::string file = bmp(7, 5, 24, 0, "", blue_first(picture(5, 7, 3), 0, false));
  for (std::size_t bytes = 2; bytes < file.size(); bytes += 3)
    REQUIRE_THROWS_WITH(decode_image(file.substr(0, bytes), "a.bmp"),
                        Contains("a.bmp: broken BMP"));
  const std::string one = std::string("\2\0\0\0", 4), palette = little(0, 4);
  const std::pair<std::string, const char*> bad[] = {
      {bmp(1, 1, 8, 0, palette, one, 1), "not in its palette"},
      {bmp(1, 1, 8, 1, palette, one, 1), "compressed BMP"},
      {bmp(1, 1, 8, 0, palette, one, 300), "palette is too long"},
      {bmp(1, 1, 7, 0, "", one), "another depth"},
      {bmp(0, 1, 24, 0, "", one), "no pixels"},
      {bmp(1, std::numeric_limits<std::int32_t>::min(), 24, 0, "", one), "cut off"},
      {bmp(1, 1, 32, 3, little(5, 4) + little(0xFF00, 4) + little(0xFF, 4), one), "run of bits"}};
  for (const auto& [bytes, text] : bad) {
    CAPTURE(text);
    CHECK_THROWS_WITH(decode_image(bytes, "a.bmp"), Contains("a.bmp: ") && Contains(text));
  }
}

TEST_CASE("the orientation is read from JPEG, PNG and WebP; without a sound one it is upright",
          "[image][exif]") {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool big_endian : {false, true}) {
      const std::string data = exif(orientation, big_endian);
      CHECK(exif_orientation(jpeg_with(data)) == orientation);
      const auto length = static_cast<std::uint32_t>(data.size());
      CHECK(exif_orientation("\x89PNG\r\n\x1A\n" + big(1, 4) + "tEXtx" + big(0, 4) +
                             big(length, 4) + "eXIf" + data + big(0, 4)) == orientation);
      CHECK(exif_orientation("RIFF" + little(0, 4) + "WEBPICCP" + little(1, 4) +
                             std::string(2, 'x') + "EXIF" + little(length, 4) + data) ==
            orientation);
    }
  }
  CHECK(exif_orientation(jpeg_with(exif(9, true))) == 1);
  CHECK(exif_orientation(jpeg_of(picture(8, 8, 3))) == 1);
  const std::string whole = jpeg_with(exif(6, false));
  for (std::size_t bytes = 0; bytes < 80; ++bytes) {
    const int found = exif_orientation(whole.substr(0, bytes));
    REQUIRE((found == 1 || found == 6));
  }
}

TEST_CASE("an image is turned as each orientation says", "[image][exif]") {
  // a b c
  // d e f
  const Image image{2, 3, 1, {'a', 'b', 'c', 'd', 'e', 'f'}};
  const std::pair<int, std::string> turned[] = {{1, "abcdef"}, {2, "cbafed"}, {3, "fedcba"},
                                                {4, "defabc"}, {5, "adbecf"}, {6, "daebfc"},
                                                {7, "fcebda"}, {8, "cfbead"}};
  for (const auto& [orientation, want] : turned) {
    CAPTURE(orientation);
    const Image got = upright(image, orientation);
    CHECK(std::string(got.pixels.begin(), got.pixels.end()) == want);
    CHECK(got.height == (orientation < 5 ? 2 : 3));
    CHECK(got.width == (orientation < 5 ? 3 : 2));
  }
}
