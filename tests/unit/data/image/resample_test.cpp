#include "data/image/pixels/resample.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "data/image/pixels/resample_kernels.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/data/image/image.hpp"
#include "tests/unit/data/image_fixture.hpp"

using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;

namespace {

/// Pixels without any smoothness.
Image noise(std::size_t height, std::size_t width, std::size_t channels) {
  Image image{height, width, channels, {}};
  for (std::size_t i = 0; i < height * width * channels; ++i)
    image.pixels.push_back(static_cast<std::uint8_t>(draw(5, height, i, Draw::synth)));
  return image;
}

Image resampled(const Image& image, const Axis& rows, const Axis& columns, bool flip = false) {
  std::vector<std::uint8_t> wide(image.height * image.width * 4 + resample_slack);
  std::vector<std::uint8_t> pixels = image.pixels;
  pixels.resize(pixels.size() + 4);
  widen_pixels(pixels.data(), image.height * image.width, image.channels, wide.data());
  Image out{rows.count, columns.count, image.channels, {}};
  out.pixels.assign(rows.count * columns.count * image.channels + 1, 0xEE);
  Resampler resampler;
  resampler.run({wide.data(), image.width * 4, 0, 0}, rows, columns, flip, image.channels,
                out.pixels.data());
  REQUIRE(out.pixels.back() == 0xEE);  // nothing is written after the last pixel
  out.pixels.pop_back();
  return out;
}

Axis whole(std::size_t length, std::size_t target) { return {0, length, target, 0, target}; }

int largest_difference(const Image& a, const Image& b) {
  REQUIRE(a.pixels.size() == b.pixels.size());
  int most = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i)
    most = std::max(most, std::abs(int{a.pixels[i]} - int{b.pixels[i]}));
  return most;
}

struct Case {
  std::size_t height, width, tall, wide;
};

/// The weights of one target pixel, as integers that add up to `whole`.
std::vector<long> weights_of(std::size_t length, std::size_t target, std::size_t i, long all,
                             std::size_t& first) {
  const double scale = static_cast<double>(length) / static_cast<double>(target);
  const double reach = std::max(scale, 1.0), centre = (static_cast<double>(i) + 0.5) * scale;
  first = static_cast<std::size_t>(std::max(centre - reach + 0.5, 0.0));
  const auto end =
      static_cast<std::size_t>(std::min(centre + reach + 0.5, static_cast<double>(length)));
  std::vector<double> shares;
  double sum = 0;
  for (std::size_t s = first; s < end; ++s) {
    shares.push_back(
        std::max(1 - std::abs((static_cast<double>(s) + 0.5 - centre) * (1 / reach)), 0.0));
    sum += shares.back();
  }
  std::vector<long> weights;
  long left = all;
  for (const double share : shares) {
    weights.push_back(static_cast<long>(share / sum * static_cast<double>(all) + 0.5));
    left -= weights.back();
  }
  *std::max_element(weights.begin(), weights.end()) += left;
  return weights;
}

}  // namespace

TEST_CASE("resampling differs from Pillow's by a level at most", "[resample]") {
  const Case c = GENERATE(Case{37, 53, 24, 24}, Case{50, 40, 17, 63}, Case{9, 200, 32, 32},
                          Case{1, 1, 5, 3}, Case{300, 7, 11, 7}, Case{64, 64, 64, 64});
  const std::size_t channels = GENERATE(1, 3);
  for (const Image& image :
       {picture(c.height, c.width, channels), noise(c.height, c.width, channels)}) {
    const Image got = resampled(image, whole(c.height, c.tall), whole(c.width, c.wide));
    CHECK(largest_difference(got, resize(image, c.tall, c.wide)) <= 1);
  }
}

TEST_CASE("resampling has the bits of integer arithmetic", "[resample]") {
  const Case c = GENERATE(Case{37, 53, 24, 24}, Case{20, 30, 33, 41}, Case{95, 11, 6, 9});
  const Image image = noise(c.height, c.width, 3);
  const Image got = resampled(image, whole(c.height, c.tall), whole(c.width, c.wide));
  for (std::size_t y = 0; y < c.tall; ++y)
    for (std::size_t x = 0; x < c.wide; ++x)
      for (std::size_t channel = 0; channel < 3; ++channel) {
        std::size_t top = 0, left = 0;
        const auto down = weights_of(c.height, c.tall, y, 1 << 15, top);
        const auto across = weights_of(c.width, c.wide, x, 1 << 11, left);
        long sum = 0;
        for (std::size_t j = 0; j < across.size(); ++j) {
          long column = 0;
          for (std::size_t i = 0; i < down.size(); ++i)
            column += image.pixels[((top + i) * c.width + left + j) * 3 + channel] * down[i];
          // To sixteenths, halves to even.
          const long low = column >> 11, rest = column & 2047;
          sum += across[j] * (low + (rest > 1024 || (rest == 1024 && low % 2 == 1) ? 1 : 0));
        }
        REQUIRE(got.pixels[(y * c.wide + x) * 3 + channel] == (sum + (1 << 14)) >> 15);
      }
}

TEST_CASE("a window of a resampled image is that part of the whole", "[resample]") {
  const Image image = noise(41, 67, 3);
  const Image all = resampled(image, whole(41, 30), whole(67, 49));
  const bool flip = GENERATE(false, true);
  const Image part = resampled(image, {0, 41, 30, 7, 13}, {0, 67, 49, 20, 18}, flip);
  for (std::size_t y = 0; y < 13; ++y)
    for (std::size_t x = 0; x < 18; ++x)
      for (std::size_t c = 0; c < 3; ++c) {
        const std::size_t from = 20 + (flip ? 17 - x : x);
        REQUIRE(part.pixels[(y * 18 + x) * 3 + c] == all.pixels[((y + 7) * 49 + from) * 3 + c]);
      }
}

TEST_CASE("resampling a box ignores what is around it", "[resample]") {
  const Image image = noise(30, 40, 3);
  const Box box{5, 11, 17, 20};
  Image cut{box.height, box.width, 3, {}};
  for (std::size_t y = 0; y < box.height; ++y)
    for (std::size_t i = 0; i < box.width * 3; ++i)
      cut.pixels.push_back(image.pixels[((y + box.top) * 40 + box.left) * 3 + i]);
  const Image want = resampled(cut, whole(17, 24), whole(20, 9));
  CHECK(resampled(image, {5, 17, 24, 0, 24}, {11, 20, 9, 0, 9}).pixels == want.pixels);
}

TEST_CASE("resampling takes pixels of 1 to 4 bytes, and keeps what keeps its size", "[resample]") {
  const std::size_t channels = GENERATE(1, 2, 3, 4), height = GENERATE(1, 3, 8);
  const Image image = noise(height, 13, channels);
  CHECK(resampled(image, whole(height, height), whole(13, 13)).pixels == image.pixels);
  Image flat = image;
  std::fill(flat.pixels.begin(), flat.pixels.end(), std::uint8_t{255});
  const Image large = resampled(flat, whole(height, 29), whole(13, 31));
  CHECK(std::count(large.pixels.begin(), large.pixels.end(), 255) ==
        static_cast<std::ptrdiff_t>(29 * 31 * channels));
}

TEST_CASE("every instruction set gives the same bits", "[resample]") {
  const std::vector<const ResampleKernels*> sets = resample_sets();
  REQUIRE(sets.back() == &resample_plain);
  constexpr std::size_t blocks = 9, taps = 5, count = 30, stride = blocks * 16;
  const std::size_t channels = GENERATE(1, 2, 3, 4), wanted = GENERATE(1, 5, 8, 30);
  const bool flip = GENERATE(false, true);
  std::vector<std::uint8_t> levels;
  for (std::size_t i = 0; i < taps * stride + resample_slack; ++i)
    levels.push_back(static_cast<std::uint8_t>(draw(7, 1, i, Draw::synth)));
  const std::vector<float> down = {3000, 9000, 12768, 7001, 999};
  std::vector<std::uint32_t> first;
  std::vector<float> across;
  for (std::size_t i = 0; i < count; ++i) {
    first.push_back(static_cast<std::uint32_t>(i - i / 8));
    const auto some = static_cast<float>(17 * i);
    across.insert(across.end(), {100 + some, 500, 900 - some, 500, 48});
  }
  const auto result = [&](const ResampleKernels& set) {
    std::vector<float> lines(blocks * 4 * resample_lanes);
    for (std::size_t line = 0; line < resample_lines; ++line)
      set.blend_lines(levels.data() + 16 * (line % 2), stride, down.data(), taps, blocks - 1,
                      &lines[line * resample_pixel]);
    std::vector<std::uint8_t> pixels(resample_lines * wanted * channels + 1, 0xEE);
    std::uint8_t* to[resample_lines];
    for (std::size_t line = 0; line < resample_lines; ++line)
      to[line] = &pixels[line * wanted * channels];
    set.blend_columns(lines.data(), first.data(), across.data(), taps, wanted, flip, channels, to);
    return pixels;
  };
  for (const ResampleKernels* set : sets) {
    CHECK(result(*set).back() == 0xEE);
    CHECK(result(*set) == result(*sets[0]));
  }
}
