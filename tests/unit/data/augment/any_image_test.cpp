#include "data/augment/any_image.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <set>
#include <vector>

using namespace lockstep;
using namespace lockstep::data;

namespace {

/// 3 x 3 pixels of this many bytes, all different.
std::vector<std::uint8_t> numbered(std::size_t pixel_bytes) {
  std::vector<std::uint8_t> image(9 * pixel_bytes);
  std::iota(image.begin(), image.end(), std::uint8_t{0});
  return image;
}

std::vector<std::uint8_t> turned(const Symmetry& how, std::vector<std::uint8_t> image) {
  std::vector<std::uint8_t> scratch;
  turn(how, 3, image.size() / 9, image.data(), scratch);
  return image;
}

}  // namespace

TEST_CASE("the eight symmetries are all of a square's, for pixels of any size", "[augment]") {
  for (const std::size_t pixel_bytes : {1, 3, 8, 24}) {
    const std::vector<std::uint8_t> image = numbered(pixel_bytes);
    std::set<std::vector<std::uint8_t>> all;
    for (unsigned bits = 0; bits < 8; ++bits) {
      const Symmetry how{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
      const std::vector<std::uint8_t> other = turned(how, image);
      all.insert(other);
      // Each pixel is whole, and neighbours stay neighbours: the middle one in the middle.
      CHECK(std::memcmp(other.data() + 4 * pixel_bytes, image.data() + 4 * pixel_bytes,
                        pixel_bytes) == 0);
    }
    CHECK(all.size() == 8);
  }
  const std::vector<std::uint8_t> image = numbered(1);
  CHECK(turned({}, image) == image);
  CHECK(turned({.across = true}, image) == std::vector<std::uint8_t>{2, 1, 0, 5, 4, 3, 8, 7, 6});
  CHECK(turned({.down = true}, image) == std::vector<std::uint8_t>{6, 7, 8, 3, 4, 5, 0, 1, 2});
  CHECK(turned({.transposed = true}, image) ==
        std::vector<std::uint8_t>{0, 3, 6, 1, 4, 7, 2, 5, 8});
  // A quarter turn is numpy's rot90.
  CHECK(turned({.transposed = true, .across = true}, image) !=
        turned({.transposed = true, .down = true}, image));
}

TEST_CASE("symmetries come equally often, and depend on seed, epoch and row alone", "[augment]") {
  AugmentSpec spec;
  std::vector<int> counts(8);
  for (std::size_t row = 0; row < 8000; ++row) {
    const Symmetry how = symmetry(spec, 3, row);
    ++counts[(how.transposed ? 1U : 0U) + (how.down ? 2U : 0U) + (how.across ? 4U : 0U)];
    const Symmetry again = symmetry(spec, 3, row);
    REQUIRE((how.transposed == again.transposed && how.down == again.down));
  }
  for (const int count : counts) CHECK(std::abs(count - 1000) < 120);  // 4 deviations
}

TEST_CASE("channels are dropped as often as asked; one stays; they become the mean", "[augment]") {
  AugmentSpec spec;
  constexpr std::size_t channels = 13;
  for (const float probability : {0.1f, 0.9f}) {
    spec.channel_dropout = probability;
    std::size_t all = 0;
    for (std::size_t row = 0; row < 2000; ++row) {
      const auto dropped = dropped_channels(spec, 1, row, channels);
      REQUIRE(dropped.size() < channels);
      REQUIRE(std::is_sorted(dropped.begin(), dropped.end()));
      all += dropped.size();
    }
    CHECK(static_cast<double>(all) / (2000 * channels) ==
          Approx(static_cast<double>(probability)).epsilon(0.05));
  }
  spec.channel_dropout = 0.99f;
  std::set<std::size_t> kept;
  for (std::size_t row = 0; row < 300; ++row) {
    const auto dropped = dropped_channels(spec, 1, row, 2);
    if (dropped.size() == 1) kept.insert(1 - dropped[0]);
  }
  CHECK(kept == std::set<std::size_t>{0, 1});

  // Two pixels of three channels of two bytes.
  std::vector<std::uint8_t> image{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<std::uint8_t> fill{100, 101, 102, 103, 104, 105};
  const std::vector<std::size_t> dropped{0, 2};
  drop_channels(dropped, fill, 2, 2, image.data());
  CHECK(image == std::vector<std::uint8_t>{100, 101, 3, 4, 104, 105, 100, 101, 9, 10, 104, 105});
}
