#include "lockstep/data/image/image.hpp"

#include <catch2/catch.hpp>
#include <optional>

#include "lockstep/base/error.hpp"
#include "tests/unit/data/image_fixture.hpp"

using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

/// Empty when `bytes` is rejected as bad input with an error that names it.
std::optional<Image> decoded(const std::string& bytes) {
  try {
    return decode_image(bytes, "holiday.jpg");
  } catch (const InputError& error) {
    CHECK_THAT(error.what(), Contains("holiday.jpg"));
    return std::nullopt;
  }
}

void check_same(const Image& got, const Image& want) {
  CHECK(got.height == want.height);
  CHECK(got.width == want.width);
  CHECK(got.channels == want.channels);
  CHECK(got.pixels == want.pixels);
}

}  // namespace

TEST_CASE("a JPEG decodes to the bits of libjpeg's defaults", "[image]") {
  const std::size_t channels = GENERATE(1, 3);
  const bool progressive = GENERATE(false, true);
  // Odd sides: chroma is halved, and the last blocks are padding.
  const std::string jpeg = jpeg_of(picture(37, 51, channels), progressive);
  check_same(decode_image(jpeg, "a.jpg"), decoded_by_libjpeg(jpeg));
}

TEST_CASE("a CMYK JPEG becomes RGB by Adobe's inverted inks", "[image]") {
  // Flat colours survive the compression to within a level or two.
  Image inverted{16, 16, 4, {}};
  for (std::size_t i = 0; i < 256; ++i)
    inverted.pixels.insert(inverted.pixels.end(), {255, 128, 0, 200});
  const Image rgb = decode_image(jpeg_of(inverted), "cmyk.jpg");
  REQUIRE(rgb.channels == 3);
  REQUIRE(rgb.pixels.size() == 16 * 16 * 3);
  CHECK(std::abs(rgb.pixels[0] - 200) <= 2);
  CHECK(std::abs(rgb.pixels[1] - 128 * 200 / 255) <= 2);
  CHECK(std::abs(rgb.pixels[2] - 0) <= 2);
}

TEST_CASE("a PNG decodes to its values; transparency and low bytes are dropped", "[image]") {
  for (const std::size_t channels : {1, 2, 3, 4})
    for (const int bits : {8, 16}) {
      const Image stored = picture(7, 9, channels);
      Image want{7, 9, channels <= 2 ? std::size_t{1} : std::size_t{3}, {}};
      for (std::size_t i = 0; i < 7 * 9; ++i)
        for (std::size_t c = 0; c < want.channels; ++c)
          want.pixels.push_back(stored.pixels[i * channels + c]);
      check_same(decode_image(png_of(stored, bits), "a.png"), want);
    }
}

TEST_CASE("an image that is cut off anywhere is an error that names it", "[image]") {
  const bool progressive = GENERATE(false, true);
  for (const std::string& whole :
       {jpeg_of(picture(24, 24, 3), progressive), png_of(picture(24, 24, 3))}) {
    REQUIRE(decoded(whole));
    for (std::size_t size = 0; size < whole.size(); ++size) {
      INFO(size << " of " << whole.size() << " bytes");
      REQUIRE_FALSE(decoded(whole.substr(0, size)));
    }
  }
}

TEST_CASE("a damaged byte is at worst an error and never harms the next image", "[image]") {
  const std::string jpeg = jpeg_of(picture(24, 24, 3)), png = png_of(picture(24, 24, 3));
  const Image want = decoded_by_libjpeg(jpeg);
  for (std::size_t at = 0; at < jpeg.size(); ++at) {
    std::string damaged = jpeg;
    damaged[at] = static_cast<char>(~damaged[at]);
    decoded(damaged);
    REQUIRE(decode_image(jpeg, "a.jpg").pixels == want.pixels);
  }
  for (std::size_t at = 0; at < png.size(); ++at) {
    std::string damaged = png;
    damaged[at] = static_cast<char>(~damaged[at]);
    INFO("byte " << at);
    REQUIRE_FALSE(decoded(damaged));  // every chunk has its checksum
  }
}

TEST_CASE("a file that is not an image is an error that names it", "[image]") {
  CHECK_THROWS_WITH(decode_image("", "a.jpg"), Contains("a.jpg: not an image: the file is empty"));
  CHECK_THROWS_WITH(decode_image("GIF89a...", "a.jpg"), Contains("a.jpg: not an image: neither"));
  CHECK_THROWS_WITH(decode_image("\xFF\xD8\xFF\xE0 hello", "a.jpg"), Contains("a.jpg: broken"));
  // 65,500 x 65,500 pixels by the header (bytes 3 to 6 of the frame's segment).
  std::string jpeg = jpeg_of(picture(16, 16, 3));
  const std::size_t frame = jpeg.find("\xFF\xC0");
  REQUIRE(frame != std::string::npos);
  jpeg.replace(frame + 5, 4, "\xFF\xDC\xFF\xDC");
  CHECK_THROWS_WITH(decode_image(jpeg, "a.jpg"),
                    Contains("a.jpg: its header claims 65500 x 65500"));
}

TEST_CASE("grey becomes RGB by repetition, RGB becomes grey by luma", "[image]") {
  const Image grey = picture(3, 4, 1), rgb = with_channels(grey, 3);
  for (std::size_t i = 0; i < rgb.pixels.size(); ++i) CHECK(rgb.pixels[i] == grey.pixels[i / 3]);
  check_same(with_channels(rgb, 1), grey);
  CHECK(with_channels(Image{1, 3, 3, {255, 0, 0, 0, 255, 0, 0, 0, 255}}, 1).pixels ==
        std::vector<std::uint8_t>{76, 150, 29});
}

TEST_CASE("resizing gives Pillow's bits", "[image]") {
  Image image{5, 7, 1, {}};
  for (unsigned i = 0; i < 35; ++i) image.pixels.push_back(static_cast<std::uint8_t>(i * 101));
  // Image.resize((width, height), Image.BILINEAR) of Pillow 9.4.
  CHECK(resize(image, 3, 4).pixels ==
        std::vector<std::uint8_t>{84, 143, 145, 137, 151, 128, 120, 148, 86, 119, 127, 91});
  CHECK(resize(image, 7, 9).pixels ==
        std::vector<std::uint8_t>{0,   67,  146, 168, 47,  126, 204, 197, 94,  111, 81,  111, 165,
                                  158, 123, 169, 162, 59,  178, 123, 108, 146, 225, 104, 126, 143,
                                  89,  134, 201, 166, 102, 181, 60,  82,  161, 228, 90,  157, 122,
                                  58,  137, 159, 120, 117, 184, 47,  114, 128, 101, 94,  173, 109,
                                  74,  141, 12,  79,  158, 180, 59,  138, 74,  39,  106});
  CHECK(resize(image, 1, 1).pixels == std::vector<std::uint8_t>{126});
}

TEST_CASE("resizing keeps channels apart, flat images flat and equal sizes equal", "[image]") {
  const Image image = picture(19, 23, 3);
  check_same(resize(image, 19, 23), image);
  const Image small = resize(image, 8, 31);
  for (std::size_t c = 0; c < 3; ++c) {
    Image plane{19, 23, 1, {}};
    for (std::size_t i = 0; i < 19 * 23; ++i) plane.pixels.push_back(image.pixels[3 * i + c]);
    const Image of_plane = resize(plane, 8, 31);
    for (std::size_t i = 0; i < 8 * 31; ++i) REQUIRE(small.pixels[3 * i + c] == of_plane.pixels[i]);
  }
  const Image flat{11, 5, 1, std::vector<std::uint8_t>(55, 255)};
  for (const std::size_t side : {1, 3, 200})
    CHECK(resize(flat, side, side).pixels == std::vector<std::uint8_t>(side * side, 255));
}
