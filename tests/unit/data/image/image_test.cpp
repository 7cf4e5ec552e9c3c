#include "lockstep/data/image/image.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <optional>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

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

/// Whether `step` succeeds, and its memory grows by less than this; what the tests before this one
/// took counts, too.
template <class Step>
bool grows_less(long kilobytes, Step step) {
  const pid_t child = fork();
  if (child == 0) {
    rusage before{}, used{};
    getrusage(RUSAGE_SELF, &before);
    const bool succeeded = step();
    getrusage(RUSAGE_SELF, &used);
    _exit(succeeded && used.ru_maxrss - before.ru_maxrss < kilobytes ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

std::string big_endian(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift);
  return text;
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

TEST_CASE("as uint16 a PNG keeps its 16 bits, and no other image is taken", "[image]") {
  const auto numbers = [](const Image& image) {
    std::vector<std::uint16_t> all(image.pixels.size() / 2);
    std::memcpy(all.data(), image.pixels.data(), image.pixels.size());
    return all;
  };
  for (const std::size_t channels : {1, 2, 3, 4}) {
    const Image stored = picture(7, 9, channels);
    const std::string file = png_of(stored, 16);
    const Image got = decode_image(file, "a.png", Element::u16);
    REQUIRE(got.channels == (channels <= 2 ? std::size_t{1} : std::size_t{3}));
    CHECK(got.channels == channels_of_16_bits(file));
    std::vector<std::uint16_t> want;
    for (std::size_t i = 0; i < 7 * 9; ++i)
      for (std::size_t c = 0; c < got.channels; ++c) {
        const unsigned high = stored.pixels[i * channels + c];
        want.push_back(static_cast<std::uint16_t>(high << 8 | (255 - high)));
      }
    CHECK(numbers(got) == want);
    CHECK(upright(upright(got, 6), 8).pixels == got.pixels);
  }
  std::vector<std::uint16_t> every(65536);
  std::iota(every.begin(), every.end(), std::uint16_t{0});
  const Image grey = decode_image(png_of_16(256, 256, every), "a.png", Element::u16);
  CHECK(numbers(grey) == every);
  const Image rgb = with_channels(grey, 3);
  CHECK(numbers(rgb)[3 * 4000 + 2] == 4000);
  CHECK(numbers(with_channels(rgb, 1)) == every);
  const std::string shallow = png_of(picture(3, 3, 3), 8), jpeg = jpeg_of(picture(16, 16, 3));
  CHECK(channels_of_16_bits(shallow) + channels_of_16_bits(jpeg) == 0);
  CHECK_THROWS_WITH(decode_image(shallow, "a.png", Element::u16),
                    Contains("a.png: has 8 bits a value"));
  CHECK_THROWS_WITH(decode_image(jpeg, "a.jpg", Element::u16), Contains("a.jpg: is no PNG of 16"));
}

TEST_CASE("a 16-bit PNG of which the high bytes keep little is an error that names its values",
          "[image]") {
  const auto of = [](auto&& value) {
    std::vector<std::uint16_t> values;
    for (unsigned i = 0; i < 64 * 64; ++i)
      values.push_back(static_cast<std::uint16_t>(value(i * 2654435761u >> 20)));
    return png_of_16(64, 64, values);
  };
  const auto refused = [&](auto&& value) { return !decoded(of(value)); };
  // All high bytes are equal, at any place of the range.
  CHECK_THROWS_WITH(decode_image(of([](unsigned i) { return i % 2 == 0 ? 60 : 200; }), "cell.png"),
                    Contains("cell.png: is a 16-bit PNG with values of 60 to 200") &&
                        Contains("have 1 levels; stretch the values"));
  CHECK(refused([](unsigned i) { return 0x8000 + i % 140; }));
  CHECK(refused([](unsigned i) { return 0x80C0 + i % 128; }));  // two levels, by chance
  CHECK(refused([](unsigned i) { return i % 4096; }));          // 12 bits: 16 levels
  // The whole scale, a flat one, a dim picture of 14 bits, and a bright one without contrast.
  CHECK(decoded(of([](unsigned i) { return i * 16; })));
  CHECK(decoded(of([](unsigned) { return 77; })));
  CHECK(decoded(of([](unsigned i) { return i * 4; })));
  CHECK(decoded(of([](unsigned i) { return 60000 + i; })));
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

TEST_CASE("a JPEG with more scans than any program writes is an error that says so", "[image]") {
  const auto segment = [](char marker, const std::string& content) {
    return std::string("\xFF") + marker + '\0' + static_cast<char>(content.size() + 2) + content;
  };
  const std::string one_code = '\1' + std::string(16, '\0'), zeros(1, '\x0F');
  const auto scan = [&](int coefficient, int high, int low) {
    return segment('\xDA', {1, 1, 0, static_cast<char>(coefficient), static_cast<char>(coefficient),
                            static_cast<char>(high << 4 | low)}) +
           zeros;
  };
  // Four blocks. Each coefficient comes in two scans, of which the second makes it finer.
  std::string file = "\xFF\xD8" + segment('\xDB', '\0' + std::string(64, '\1')) +
                     segment('\xC2', std::string("\x08\0\x10\0\x10\1\1\x11\0", 9)) +
                     segment('\xC4', '\0' + one_code) + segment('\xC4', '\x10' + one_code) +
                     scan(0, 0, 0);
  const std::string end = "\xFF\xD9";
  for (int scans = 1; scans < 99; scans += 2)
    file += scan((scans + 1) / 2, 0, 1) + scan((scans + 1) / 2, 1, 0);
  CHECK(decoded(file + scan(60, 0, 0) + end));
  CHECK_THROWS_WITH(decode_image(file + scan(60, 0, 1) + scan(60, 1, 0) + end, "a.jpg"),
                    Contains("a.jpg: broken JPEG: it has more scans than any program writes"));
}

TEST_CASE("a thin image is resized in little memory, and too thin a one is an error", "[image]") {
  const Image thin{longest_side, 1, 1, std::vector<std::uint8_t>(longest_side, 255)};
  // Widened first, it would have 700 MB.
  CHECK(grows_less(300'000, [&] {
    bool flat = true;
    for (const std::uint8_t value : resize(thin, 700, 700).pixels) flat = flat && value == 255;
    return flat;
  }));
  CHECK_THROWS_WITH(require_decodable(longest_side + 1, 1, "a.png"),
                    Contains("a.png: is 1048577 x 1 pixels; a side has at most 1048576"));
  CHECK_NOTHROW(require_decodable(1, longest_side, "a.png"));
}

TEST_CASE("a PNG that is too wide is an error before there is room for its lines", "[image]") {
  std::string file = png_of(picture(2, 3, 4));
  file.replace(16, 4, big_endian(117'440'517));  // the width; the checksum is that of 17 bytes
  const auto sum = crc32(0, reinterpret_cast<const Bytef*>(file.data()) + 12, 17);
  file.replace(29, 4, big_endian(static_cast<std::uint32_t>(sum)));
  CHECK(grows_less(100'000, [&] {
    try {
      decode_image(file, "a.png");
    } catch (const InputError& error) {
      return std::string(error.what()) ==
             "a.png: is 2 x 117440517 pixels; a side has at most 1048576";
    }
    return false;
  }));
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
