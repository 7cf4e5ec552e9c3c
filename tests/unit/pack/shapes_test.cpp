#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/pack/source/shapes.hpp"

using namespace lockstep::data;
using namespace lockstep::pack;

TEST_CASE("a generated image is a function of seed, row and label alone", "[shapes]") {
  const Image image = render_shape(1, 7, 5);
  CHECK(image.height == 32);
  CHECK(image.width == 32);
  CHECK(image.channels == 3);
  CHECK(render_shape(1, 7, 5).pixels == image.pixels);
  CHECK(render_shape(2, 7, 5).pixels != image.pixels);
  CHECK(render_shape(1, 8, 5).pixels != image.pixels);
  CHECK(render_shape(1, 7, 6).pixels != image.pixels);
}

TEST_CASE("generated images have the same bits with every compiler", "[shapes]") {
  // Recorded with g++ 12; a draw in each of two arguments of a call gave other bits with clang.
  std::uint32_t crc = 0;
  for (std::size_t row = 0; row < 50; ++row) {
    const Image image = render_shape(1, row, row % 10);
    crc = lockstep::crc32c(image.pixels.data(), image.pixels.size(), crc);
  }
  CHECK(crc == 0x00a451e6);
}

TEST_CASE("generated classes are equally frequent and no row is in both splits", "[shapes]") {
  ShapesSpec spec;
  spec.training_rows = 200;
  spec.validation_rows = 100;
  const auto source = make_shapes(spec);
  REQUIRE(source->classes().size() == 10);
  REQUIRE(source->rows() == 300);
  REQUIRE(source->training_rows() == 200);
  std::vector<std::size_t> count(10);
  for (std::size_t row = 0; row < 300; ++row) ++count[static_cast<std::size_t>(source->label(row))];
  CHECK(count == std::vector<std::size_t>(10, 30));
  std::vector<std::vector<std::uint8_t>> images;
  for (std::size_t row = 0; row < 300; ++row) images.push_back(source->read(row).pixels);
  std::sort(images.begin(), images.end());
  CHECK(std::adjacent_find(images.begin(), images.end()) == images.end());
}

TEST_CASE("no single pixel of a generated image tells its class", "[shapes]") {
  // The mean of n pixels of deviation 70 has a deviation of 70 / sqrt(n): 3.1 for 500. Of 30,720
  // such means none is 6 deviations off unless a class has its own place or colour.
  constexpr std::size_t rows = 500, values = 32 * 32 * 3;
  std::vector<double> overall(values);
  std::vector<std::vector<double>> mean(10, std::vector<double>(values));
  for (std::size_t label = 0; label < 10; ++label) {
    for (std::size_t row = 0; row < rows; ++row) {
      const Image image = render_shape(1, row * 10 + label, label);
      for (std::size_t i = 0; i < values; ++i)
        mean[label][i] += image.pixels[i] / static_cast<double>(rows);
    }
    for (std::size_t i = 0; i < values; ++i) overall[i] += mean[label][i] / 10;
  }
  double largest = 0;
  for (const std::vector<double>& of_class : mean)
    for (std::size_t i = 0; i < values; ++i)
      largest = std::max(largest, std::abs(of_class[i] - overall[i]));
  CHECK(largest < 6 * 70 / std::sqrt(500.0));
}
