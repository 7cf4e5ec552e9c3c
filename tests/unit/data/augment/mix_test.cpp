#include "lockstep/data/augment/mix.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/base/rng.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace {

constexpr std::size_t row_count = 5, image_height = 7, image_width = 9, image_channels = 3;
constexpr std::size_t image_bytes = image_height * image_width * image_channels;

struct Rows {
  std::vector<std::uint8_t> images;
  std::vector<Target> targets;
  Rows() : images((row_count + 1) * image_bytes) {
    for (std::size_t i = 0; i < images.size(); ++i)
      images[i] = static_cast<std::uint8_t>(draw(2, 0, i, Draw::synth));
    for (std::int32_t row = 0; row < std::int32_t{row_count}; ++row)
      targets.push_back({row, row, 1});
    targets.push_back({});
  }
};

Rows mixed(const Mix& how) {
  Rows rows;
  mix_rows(how, row_count, image_height, image_width, image_channels, rows.images.data(),
           rows.targets.data());
  return rows;
}

std::size_t partner_of(std::size_t row) { return (row + row_count - 1) % row_count; }

/// The label's share of a target.
double share_of(const Target& target, std::size_t label) {
  const auto is = [&](std::int32_t other) { return static_cast<std::size_t>(other) == label; };
  return (is(target.label_a) ? double{target.mix} : 0) +
         (is(target.label_b) ? 1 - double{target.mix} : 0);
}

}  // namespace

TEST_CASE("mixup is the mean of two images by share, to the nearest level", "[mix]") {
  const Rows before;
  for (const float share : {0.25f, 0.5f, 0.8125f}) {
    const Rows after = mixed({share, {}});
    for (std::size_t row = 0; row < row_count; ++row) {
      const std::uint8_t* own = &before.images[row * image_bytes];
      const std::uint8_t* other = &before.images[partner_of(row) * image_bytes];
      for (std::size_t i = 0; i < image_bytes; ++i) {
        const double exact = own[i] * double{share} + other[i] * (1 - double{share});
        REQUIRE(std::abs(after.images[row * image_bytes + i] - exact) <= 0.5);
      }
      CHECK(share_of(after.targets[row], row) == Approx(share));
      CHECK(share_of(after.targets[row], partner_of(row)) == Approx(1 - share));
      CHECK(after.targets[row].mix >= 0.5f);
    }
  }
}

TEST_CASE("CutMix pastes the box of the partner", "[mix]") {
  const Rows before;
  const Box box{1, 2, 4, 6};
  const float share = 1 - 24.0f / 63;
  const Rows after = mixed({share, box});
  for (std::size_t row = 0; row < row_count; ++row) {
    for (std::size_t i = 0; i < image_bytes; ++i) {
      const std::size_t y = i / image_channels / image_width, x = i / image_channels % image_width;
      const bool inside = y >= 1 && y < 5 && x >= 2 && x < 8;
      REQUIRE(after.images[row * image_bytes + i] ==
              before.images[(inside ? partner_of(row) : row) * image_bytes + i]);
    }
    CHECK(share_of(after.targets[row], row) == Approx(share));
  }
}

TEST_CASE("padding after the rows is not mixed, nor is a single row", "[mix]") {
  const Rows before;
  Rows after = mixed({0.5f, {}});
  const auto padding = before.images.end() - std::ptrdiff_t{image_bytes};
  CHECK(std::equal(padding, before.images.end(), after.images.end() - std::ptrdiff_t{image_bytes}));
  CHECK(after.targets.back().label_a == -1);
  after = before;
  mix_rows({0.5f, {}}, 1, image_height, image_width, image_channels, after.images.data(),
           after.targets.data());
  CHECK(after.images == before.images);
  CHECK((after.targets[0].label_a == 0 && after.targets[0].mix == 1));
  CHECK(mixed({1, {}}).images == before.images);
}

TEST_CASE("shares are Beta's, boxes lie where they should, and both are drawn by position",
          "[mix]") {
  constexpr std::size_t batches = 20000;
  for (const float alpha : {0.2f, 1.0f, 2.5f}) {
    double mean = 0, square = 0;
    for (std::uint64_t b = 0; b < batches; ++b) {
      const double share = double{draw_mix({alpha, 0, 3}, 1, b, 10, 10).share} - 0.5;
      mean += share / batches;
      square += share * share / batches;
    }
    CHECK(std::abs(mean) < 0.01);
    CHECK(square == Approx(1 / (8.0 * double{alpha} + 4)).epsilon(0.03));  // Beta's variance
  }
  std::size_t cuts = 0;
  double top = 0, covered = 0;
  for (std::uint64_t b = 0; b < batches; ++b) {
    const Mix mix = draw_mix({1, 1, 3}, 1, b, 60, 80);
    if (!mix.is_cut()) continue;
    ++cuts;
    REQUIRE(mix.box.top + mix.box.height <= 60);
    REQUIRE(mix.box.left + mix.box.width <= 80);
    const auto area = static_cast<double>(mix.box.height * mix.box.width);
    REQUIRE(mix.share == Approx(1 - area / 4800));
    covered += area / 4800;
    top += static_cast<double>(2 * mix.box.top + mix.box.height) / 120;
  }
  CHECK(cuts == Approx(batches / 2.0).epsilon(0.05));
  CHECK(top / static_cast<double>(cuts) == Approx(0.5).margin(0.01));
  CHECK(covered / static_cast<double>(cuts) > 0.25);  // 0.5 but for what the edges cut off
  CHECK(covered / static_cast<double>(cuts) < 0.5);
  const Mix one = draw_mix({1, 0, 3}, 1, 7, 9, 9);
  CHECK(one.share == draw_mix({1, 0, 3}, 1, 7, 9, 9).share);
  CHECK(one.share != draw_mix({1, 0, 3}, 2, 7, 9, 9).share);
  CHECK(one.share != draw_mix({1, 0, 4}, 1, 7, 9, 9).share);
  CHECK(draw_mix({0.01f, 0, 1}, 0, 0, 9, 9).share >= 0);  // no number is too small
}

TEST_CASE("what is wanted of mixed rows is shares of both, unknown if one is", "[mix]") {
  const float unknown = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> wanted = {1, 0, 0, unknown, 0, 1};
  mix_wanted({0.75f, {}}, 3, 2, wanted.data());
  CHECK(wanted[0] == 0.75f);
  CHECK(wanted[1] == 0.25f);
  CHECK(wanted[2] == 0.25f);
  CHECK(std::isnan(wanted[3]));
  CHECK(wanted[4] == 0);
  CHECK(std::isnan(wanted[5]));
  std::vector<float> alone = {1, 0};
  mix_wanted({0.75f, {}}, 1, 2, alone.data());
  CHECK(alone == std::vector<float>{1, 0});
}
