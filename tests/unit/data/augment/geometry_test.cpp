#include "data/augment/geometry.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

using namespace lockstep::data;

namespace {

AugmentSpec random_resized(std::size_t side) {
  AugmentSpec spec;
  spec.crop = Crop::random_resized;
  spec.height = spec.width = side;
  return spec;
}

}  // namespace

TEST_CASE("a random box lies in the image, with an allowed area and shape", "[geometry]") {
  const AugmentSpec spec = random_resized(224);
  const std::size_t height = GENERATE(375, 500, 64), width = GENERATE(500, 375, 64);
  for (std::size_t row = 0; row < 2000; ++row) {
    const Box box = random_resized_box(spec, 3, row, height, width);
    REQUIRE(box.height > 0);
    REQUIRE(box.width > 0);
    REQUIRE(box.top + box.height <= height);
    REQUIRE(box.left + box.width <= width);
    const auto tall = static_cast<double>(box.height), wide = static_cast<double>(box.width);
    REQUIRE((tall + 0.51) * (wide + 0.51) >= 0.08 * static_cast<double>(height * width));
    REQUIRE((wide + 0.51) / (tall - 0.51) >= 0.75);
    REQUIRE((wide - 0.51) / (tall + 0.51) <= 4.0 / 3);
  }
}

TEST_CASE("random boxes have torchvision's distribution", "[geometry]") {
  // Means of 60,000 boxes of torchvision 0.14's RandomResizedCrop(224).get_params on 500 x 375
  // pixels.
  constexpr double area = 0.4341, shape = 1.0456, top = 52.20, left = 108.58, near = 0.015;
  const AugmentSpec spec = random_resized(224);
  constexpr std::size_t boxes = 100'000;
  double sums[4] = {};
  for (std::size_t row = 0; row < boxes; ++row) {
    const Box box = random_resized_box(spec, 0, row, 375, 500);
    sums[0] += static_cast<double>(box.height * box.width) / (375 * 500);
    sums[1] += static_cast<double>(box.width) / static_cast<double>(box.height);
    sums[2] += static_cast<double>(box.top);
    sums[3] += static_cast<double>(box.left);
  }
  const double want[] = {area, shape, top, left};
  for (int i = 0; i < 4; ++i) CHECK(sums[i] / boxes == Approx(want[i]).epsilon(near));
}

TEST_CASE("a box is a function of seed, epoch and row", "[geometry]") {
  AugmentSpec spec = random_resized(224);
  const auto box = [&](std::uint64_t epoch, std::size_t row) {
    return random_resized_box(spec, epoch, row, 375, 500);
  };
  const Box first = box(1, 2);
  CHECK(box(1, 2) == first);
  CHECK_FALSE(box(2, 2) == first);
  CHECK_FALSE(box(1, 3) == first);
  spec.seed = 2;
  CHECK_FALSE(box(1, 2) == first);
}

TEST_CASE("where no box of an allowed shape fits, it is the largest in the middle", "[geometry]") {
  AugmentSpec spec = random_resized(224);
  spec.min_area = 1;
  CHECK(random_resized_box(spec, 0, 0, 30, 1000) == Box{0, 480, 30, 40});
  CHECK(random_resized_box(spec, 0, 0, 1000, 30) == Box{480, 0, 40, 30});
}

TEST_CASE("sizes and places in evaluation are torchvision's", "[geometry]") {
  struct Record {  // Resize(256), CenterCrop(224) of torchvision 0.14
    std::size_t height, width, tall, wide, top, left;
  };
  constexpr Record records[] = {{375, 500, 256, 341, 16, 58},  {500, 375, 341, 256, 58, 16},
                                {256, 256, 256, 256, 16, 16},  {333, 500, 256, 384, 16, 80},
                                {100, 299, 256, 765, 16, 270}, {601, 400, 384, 256, 80, 16}};
  AugmentSpec spec;
  spec.crop = Crop::centre;
  spec.height = spec.width = 224;
  spec.short_side = 256;
  for (const Record& r : records) {
    const Geometry how = geometry(spec, 0, 0, r.height, r.width);
    CHECK(how.rows == Axis{0, r.height, r.tall, r.top, 224});
    CHECK(how.columns == Axis{0, r.width, r.wide, r.left, 224});
    CHECK_FALSE(how.flip);
  }
}

TEST_CASE("rows are resampled only where that changes them", "[geometry]") {
  AugmentSpec spec;
  CHECK_FALSE(resamples(spec, 256, 300));
  spec.short_side = 256;
  CHECK_FALSE(resamples(spec, 256, 300));
  CHECK(resamples(spec, 255, 300));
  CHECK(resamples(random_resized(256), 256, 256));
}
