#include "data/image/jpeg/jpeg_codec.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <new>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "tests/unit/data/image_fixture.hpp"

using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

/// A picture with sharp edges everywhere, so that any mixing with neighbours shows.
Image edges(std::size_t height, std::size_t width, std::size_t channels) {
  Image image{height, width, channels, {}};
  for (std::size_t y = 0; y < height; ++y)
    for (std::size_t i = 0; i < width * channels; ++i)
      image.pixels.push_back(static_cast<std::uint8_t>(draw(9, y / 3, i / 5, Draw::synth)));
  return image;
}

/// How a JPEG is made.
struct Form {
  Chroma chroma;
  bool progressive;
  std::size_t channels;
};

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::vector<std::uint8_t> pixels_of(const Picture& picture, const Box& box) {
  std::vector<std::uint8_t> pixels;
  for (std::size_t y = 0; y < box.height; ++y)
    for (std::size_t x = 0; x < box.width; ++x)
      for (std::size_t c = 0; c < 3; ++c)
        pixels.push_back(picture.pixels[(box.top + y - picture.top) * picture.stride +
                                        (box.left + x - picture.left) * 4 + c]);
  return pixels;
}

}  // namespace

TEST_CASE("a JPEG with a table without codes is an error, whatever memory held before", "[jpeg]") {
  const auto segment = [](char marker, const std::string& content) {
    return std::string("\xFF") + marker + '\0' + static_cast<char>(content.size() + 2) + content;
  };
  const std::string one_code = '\1' + std::string(16, '\0'), no_code(16, '\0');
  const bool in_dc = GENERATE(false, true);
  const std::string file = "\xFF\xD8" + segment('\xDB', '\0' + std::string(64, '\1')) +
                           segment('\xC0', std::string("\x08\0\x28\0\x28\1\1\x11\0", 9)) +
                           segment('\xC4', '\0' + (in_dc ? no_code : one_code)) +
                           segment('\xC4', '\x11' + (in_dc ? one_code : no_code)) +
                           segment('\xDA', std::string("\1\1\1\0\x3F\0", 6)) +
                           std::string(64, '\0') + "\xFF\xD9";
  alignas(JpegRegion) static std::array<std::byte, sizeof(JpegRegion)> room;
  for (const int before : {0, 30, 62, 158, 255}) {
    room.fill(static_cast<std::byte>(before));
    auto* const region = new (room.data()) JpegRegion;
    CHECK_THROWS_WITH(region->decode(bytes_of(file), {40, 40, true, 1, {0, 0, 40, 40}}),
                      Contains("broken JPEG: a Huffman table without codes"));
    region->~JpegRegion();
  }
}

TEST_CASE("a part of a JPEG has the pixels of the whole", "[jpeg]") {
  const Form form = GENERATE(Form{{1, 1}, false, 3}, Form{{2, 1}, false, 3}, Form{{2, 2}, false, 3},
                             Form{{1, 2}, false, 3}, Form{{2, 2}, true, 3}, Form{{1, 1}, false, 1});
  constexpr std::size_t height = 75, width = 101;
  const std::string jpeg =
      jpeg_of(edges(height, width, form.channels), form.progressive, form.chroma);
  JpegRegion region, other;
  const Box all{0, 0, height, width};
  const Picture whole = other.decode(bytes_of(jpeg), {height, width, false, 1, all});
  if (form.channels == 3) {
    CHECK(pixels_of(whole, all) == decoded_by_libjpeg(jpeg).pixels);
  }
  for (std::size_t i = 0; i < 300; ++i) {
    const Philox bits = philox(1, i, 0);
    Box box;
    box.height = 1 + below(bits.word[0], height);
    box.width = 1 + below(bits.word[1], width);
    box.top = below(bits.word[2], static_cast<std::uint32_t>(height - box.height + 1));
    box.left = below(bits.word[3], static_cast<std::uint32_t>(width - box.width + 1));
    const Picture part = region.decode(bytes_of(jpeg), {height, width, false, 1, box});
    INFO(box.top << ' ' << box.left << ' ' << box.height << ' ' << box.width);
    REQUIRE(pixels_of(part, box) == pixels_of(whole, box));
  }
}

TEST_CASE("a part of a reduced JPEG has the pixels of the whole reduced one", "[jpeg]") {
  const std::size_t reduction = GENERATE(2, 4, 8);
  const std::string jpeg = jpeg_of(edges(150, 203, 3));
  JpegRegion region, other;
  const Box all{0, 0, reduced(150, reduction), reduced(203, reduction)};
  const Picture whole = other.decode(bytes_of(jpeg), {150, 203, false, reduction, all});
  const Box box{all.height / 4, all.width / 3, all.height / 2, all.width / 2};
  const Picture part = region.decode(bytes_of(jpeg), {150, 203, false, reduction, box});
  CHECK(pixels_of(part, box) == pixels_of(whole, box));
}

TEST_CASE("a wrong JPEG is an error, and the next one is decoded", "[jpeg]") {
  const std::string jpeg = jpeg_of(picture(40, 30, 3));
  const Box box{10, 5, 20, 20};
  JpegRegion region;
  const auto decode = [&](std::string_view bytes, std::size_t height, bool grey) {
    return region.decode(bytes_of(std::string(bytes)), {height, 30, grey, 1, box});
  };
  for (std::size_t size = 0; size < jpeg.size() / 2; size += 7)
    CHECK_THROWS_WITH(decode(std::string_view(jpeg).substr(0, size), 40, false),
                      Contains("broken JPEG"));
  CHECK_THROWS_WITH(decode(jpeg, 41, false),
                    Contains("is 40 x 30 pixels, but 41 x 30 are stored as its size"));
  CHECK_THROWS_WITH(decode(jpeg, 40, true), Contains("in colour"));
  CHECK_THROWS_AS(decode(jpeg, 41, false), InputError);
  CHECK_NOTHROW(decode(jpeg, 40, false));
}

TEST_CASE("a JPEG without its tables is an error, whatever was decoded before", "[jpeg]") {
  const std::string jpeg = jpeg_of(picture(40, 30, 3));
  std::string stripped = jpeg;
  for (std::size_t at = 0; (at = stripped.find("\xFF\xDB", at)) != std::string::npos;) {
    const auto high = static_cast<std::uint8_t>(stripped[at + 2]);
    const auto low = static_cast<std::uint8_t>(stripped[at + 3]);
    stripped.erase(at, 2 + std::size_t{high} * 256 + low);
  }
  REQUIRE(stripped.size() < jpeg.size());
  const JpegRegion::Request all{40, 30, false, 1, {0, 0, 40, 30}};
  JpegRegion region;
  region.decode(bytes_of(jpeg), all);
  CHECK_THROWS_WITH(region.decode(bytes_of(stripped), all), Contains("Quantization table"));
  CHECK_NOTHROW(region.decode(bytes_of(jpeg), all));
}
