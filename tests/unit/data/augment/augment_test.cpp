#include "lockstep/data/augment/augment.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <vector>

#include "lockstep/base/rng.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace {

using Pixels = std::vector<std::uint8_t>;

Pixels noise(std::size_t size) {
  Pixels pixels(size);
  for (std::size_t i = 0; i < size; ++i) {
    pixels[i] = static_cast<std::uint8_t>(1 + draw(5, 0, i, Draw::synth) % 255);
  }
  return pixels;
}

// Each pixel by definition: pad, crop, flip, cut out.
Pixels by_definition(const AugmentSpec& spec, const RowPlacement& where, int height, int width,
                     int channels, const Pixels& fill, const Pixels& from) {
  Pixels to(from.size());
  const int pad = static_cast<int>(spec.pad), side = static_cast<int>(spec.cutout);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const int sy = y + where.dy - pad;
      const int sx = (where.flip ? width - 1 - x : x) + where.dx - pad;
      const bool inside = sy >= 0 && sy < height && sx >= 0 && sx < width;
      const int top = where.cut_y - side / 2, left = where.cut_x - side / 2;
      const bool cut = y >= top && y < top + side && x >= left && x < left + side;
      for (int c = 0; c < channels; ++c) {
        const auto i = static_cast<std::size_t>((y * width + x) * channels + c);
        to[i] = cut      ? fill[static_cast<std::size_t>(c)]
                : inside ? from[static_cast<std::size_t>((sy * width + sx) * channels + c)]
                         : std::uint8_t{0};
      }
    }
  }
  return to;
}

// True when augment() gives what the definition gives and writes nothing around the image.
bool agrees(const AugmentSpec& spec, const RowPlacement& where, int height, int width,
            int channels) {
  const auto size = static_cast<std::size_t>(height * width * channels);
  const Pixels from = noise(size);  // exactly sized: reading outside is an error to a sanitizer
  const Pixels fill = noise(static_cast<std::size_t>(channels));
  Pixels to(size + 32, 77);
  augment(spec, where, static_cast<std::size_t>(height), static_cast<std::size_t>(width),
          static_cast<std::size_t>(channels), fill, from.data(), to.data() + 16);
  const Pixels want = by_definition(spec, where, height, width, channels, fill, from);
  const Pixels guard(16, 77);
  return std::equal(want.begin(), want.end(), to.begin() + 16) &&
         std::equal(guard.begin(), guard.end(), to.begin()) &&
         std::equal(guard.begin(), guard.end(), to.end() - 16);
}

}  // namespace

TEST_CASE("augmentation is its definition, pixel by pixel", "[augment]") {
  for (const int channels : {1, 2, 3, 4, 5, 16, 17}) {
    for (const int width : {1, 2, 5, 6, 7, 16, 17, 32}) {
      const int height = 5;
      for (const std::size_t pad : {0, 1, 4}) {
        AugmentSpec spec;
        spec.pad = pad;
        for (int dy = 0; dy <= 2 * static_cast<int>(pad); dy += 3) {
          for (int dx = 0; dx <= 2 * static_cast<int>(pad); ++dx) {
            REQUIRE(agrees(spec, {dy, dx, false, 0, 0}, height, width, channels));
            REQUIRE(agrees(spec, {dy, dx, true, 0, 0}, height, width, channels));
          }
        }
      }
    }
  }
}

TEST_CASE("the cutout is filled where it lies inside the image", "[augment]") {
  AugmentSpec spec;
  spec.pad = 2;
  for (const std::size_t side : {1, 2, 3, 8, 50}) {
    spec.cutout = side;
    for (int y = 0; y < 9; ++y) {
      for (int x = 0; x < 11; ++x) REQUIRE(agrees(spec, {1, 3, true, y, x}, 9, 11, 3));
    }
  }
}

TEST_CASE("a placement is a function of seed, epoch and row, and turns off what is off",
          "[augment]") {
  AugmentSpec spec;
  const RowPlacement none = placement(spec, 3, 17, 32, 32);
  CHECK((none.dy == 0 && none.dx == 0 && !none.flip && none.cut_y == 0 && none.cut_x == 0));
  spec.pad = 4;
  spec.flip = true;
  spec.cutout = 8;
  const auto same = [](const RowPlacement& a, const RowPlacement& b) {
    return a.dy == b.dy && a.dx == b.dx && a.flip == b.flip && a.cut_y == b.cut_y &&
           a.cut_x == b.cut_x;
  };
  const RowPlacement one = placement(spec, 3, 17, 32, 32);
  CHECK(same(one, placement(spec, 3, 17, 32, 32)));
  CHECK_FALSE(same(one, placement(spec, 4, 17, 32, 32)));
  CHECK_FALSE(same(one, placement(spec, 3, 18, 32, 32)));
  // Turning one thing off leaves the others where they are.
  spec.cutout = 0;
  const RowPlacement without = placement(spec, 3, 17, 32, 32);
  CHECK((without.dy == one.dy && without.dx == one.dx && without.flip == one.flip));
}

TEST_CASE("crops, flips and cutouts are uniform over all places", "[augment]") {
  AugmentSpec spec;
  spec.pad = 4;
  spec.flip = true;
  spec.cutout = 8;
  constexpr int placed_rows = 81 * 200;
  std::map<int, double> crops, flips, lines, columns;
  for (std::size_t row = 0; row < placed_rows; ++row) {
    const RowPlacement where = placement(spec, 1, row, 10, 20);
    crops[where.dy * 9 + where.dx] += 1;
    flips[where.flip] += 1;
    lines[where.cut_y] += 1;
    columns[where.cut_x] += 1;
  }
  const auto uniform_over = [](const std::map<int, double>& counts, std::size_t places) {
    const double expected = static_cast<double>(placed_rows) / static_cast<double>(places);
    double chi_square = 0;
    for (const auto& [place, count] : counts) {
      chi_square += (count - expected) * (count - expected) / expected;
    }
    const double freedom = static_cast<double>(places - 1);
    return counts.size() == places && chi_square < freedom + 5 * std::sqrt(2 * freedom);
  };
  CHECK(uniform_over(crops, 81));
  CHECK(crops.begin()->first == 0);
  CHECK(crops.rbegin()->first == 80);
  CHECK(uniform_over(flips, 2));
  CHECK(uniform_over(lines, 10));
  CHECK(uniform_over(columns, 20));
}
