#include "data/augment/effects.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/data/loading/row_reader.hpp"
#include "tests/unit/data/image_fixture.hpp"
#include "tests/unit/data/shard_fixture.hpp"

using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

AugmentSpec with(const Effects& effects) {
  AugmentSpec spec;
  spec.effects = effects;
  return spec;
}

Effects everything() {
  return {.brightness = 0.4f,
          .contrast = 0.4f,
          .saturation = 0.4f,
          .hue = 0.1f,
          .operations = 2,
          .magnitude = 9,
          .erase = 0.5f};
}

constexpr std::size_t drawn_rows = 20000;

}  // namespace

TEST_CASE("jitter's amounts are uniform over their ranges and every order occurs", "[effects]") {
  const AugmentSpec spec =
      with({.brightness = 0.4f, .contrast = 1.5f, .saturation = 0.2f, .hue = 0.1f});
  const std::array<double, 4> low = {0.6, 0, 0.8, -0.1}, high = {1.4, 2.5, 1.2, 0.1};
  std::array<double, 4> sum{};
  std::map<std::array<Jitter::Kind, 4>, int> orders;
  for (std::size_t row = 0; row < drawn_rows; ++row) {
    const Jitter drawn = jitter(spec, 2, row);
    ++orders[drawn.order];
    for (std::size_t k = 0; k < 4; ++k) {
      REQUIRE(drawn.amount[k] >= low[k] - 1e-6);
      REQUIRE(drawn.amount[k] <= high[k] + 1e-6);
      sum[k] += (drawn.amount[k] - low[k]) / (high[k] - low[k]) / double{drawn_rows};
    }
  }
  for (const double mean : sum) CHECK(mean == Approx(0.5).margin(0.01));
  CHECK(orders.size() == 24);
  for (const auto& [order, count] : orders) CHECK(count == Approx(drawn_rows / 24.0).epsilon(0.2));
}

TEST_CASE("RandAugment draws all operations equally often, with torchvision's magnitudes",
          "[effects]") {
  AugmentSpec spec = with({.operations = 2, .magnitude = 9});
  using O = ImageChange::Kind;
  std::map<O, std::array<int, 2>> signs;
  for (std::size_t row = 0; row < drawn_rows; ++row) {
    const ImageChange drawn = rand_augment(spec, 1, row, row % 2, 224, 200);
    const ImageChange wanted = operation(drawn.kind, 9, drawn.magnitude < 0, 224, 200);
    REQUIRE(drawn.magnitude == wanted.magnitude);
    ++signs[drawn.kind][drawn.magnitude < 0];
  }
  REQUIRE(signs.size() == ImageChange::kinds);
  const auto is_signed = [](O kind) { return kind >= O::shear_x && kind <= O::sharpness; };
  for (const auto& [kind, count] : signs) {
    CHECK(count[0] + count[1] == Approx(drawn_rows / 14.0).epsilon(0.15));
    if (is_signed(kind)) CHECK(count[1] == Approx(count[0]).epsilon(0.25));
    if (!is_signed(kind)) CHECK(count[1] == 0);
  }
  // torchvision's table: linspace(0, most, 31)[magnitude].
  const auto of = [](O kind, std::size_t magnitude) {
    return operation(kind, magnitude, false, 224, 200).magnitude;
  };
  CHECK(of(O::shear_x, 9) == Approx(0.09));
  CHECK(of(O::translate_x, 9) == 27);  // of 27.19
  CHECK(of(O::translate_y, 9) == 30);  // of 30.45
  CHECK(of(O::rotate, 9) == Approx(9));
  CHECK(of(O::contrast, 30) == Approx(0.9));
  CHECK(of(O::solarise, 9) == Approx(178.5));
  CHECK(of(O::solarise, 30) == 0);
  CHECK(of(O::posterise, 0) == 8);
  CHECK(of(O::posterise, 9) == 7);
  CHECK(of(O::posterise, 30) == 4);
}

TEST_CASE("the erased part follows RandomErasing's law", "[effects]") {
  const AugmentSpec spec = with({.erase = 0.25f});
  std::size_t erased = 0;
  for (std::size_t row = 0; row < drawn_rows; ++row) {
    const Box box = erased_box(spec, 0, row, 40, 60);
    if (box == Box{}) continue;
    ++erased;
    REQUIRE(box.top + box.height <= 40);
    REQUIRE(box.left + box.width <= 60);
    const double share = static_cast<double>(box.height * box.width) / 2400;
    REQUIRE(share > 0.012);
    REQUIRE(share < 0.36);
  }
  CHECK(erased == Approx(drawn_rows / 4.0).epsilon(0.05));
  CHECK(erased_box(with({.erase = 1}), 0, 1, 1, 1) == Box{});  // nothing that small fits
}

TEST_CASE("turning one effect off leaves the others' draws where they are", "[effects]") {
  const AugmentSpec all = with(everything());
  AugmentSpec some = all;
  some.effects.hue = 0;
  some.effects.operations = 0;
  for (std::size_t row = 0; row < 50; ++row) {
    const Jitter a = jitter(all, 3, row), b = jitter(some, 3, row);
    CHECK(a.order == b.order);
    CHECK(a.amount[Jitter::contrast] == b.amount[Jitter::contrast]);
    CHECK(erased_box(all, 3, row, 30, 30) == erased_box(some, 3, row, 30, 30));
  }
}

TEST_CASE("a painted row is a function of seed, epoch and row, whatever was painted before",
          "[effects]") {
  const Image image = picture(41, 37, 3);
  const std::vector<std::uint8_t> fill = {1, 2, 3};
  const auto painted = [&](Painter& painter, std::uint64_t epoch, std::size_t row) {
    std::vector<std::uint8_t> pixels = image.pixels;
    painter.paint(epoch, row, {pixels.data(), 41, 37, 3}, fill);
    return pixels;
  };
  Painter one(with(everything())), other(with(everything()));
  std::set<std::vector<std::uint8_t>> seen;
  for (std::size_t row = 0; row < 40; ++row) seen.insert(painted(one, 1, row));
  CHECK(seen.size() == 40);
  for (std::size_t row = 40; row-- > 0;) CHECK(seen.count(painted(other, 1, row)) == 1);
  CHECK(painted(one, 2, 7) != painted(one, 1, 7));
}

TEST_CASE("a cutout stays the mean whatever happens to the colours", "[effects]") {
  const Folder folder;
  write_shard(folder.path / "a.h5", small_info(), 0, 9);
  const DataSet rows(folder.path / "a.h5");
  AugmentSpec spec = with({.brightness = 0.9f, .contrast = 0.9f, .operations = 2});
  spec.cutout = 20;  // the whole image
  RowReader reader(rows, spec);
  std::vector<std::uint8_t> got(reader.row_bytes());
  reader.read(0, 4, got);
  for (std::size_t i = 0; i < got.size(); i += 3)
    REQUIRE((got[i] == 128 && got[i + 1] == 64 && got[i + 2] == 32));
}

TEST_CASE("effects reach the rows, and need 1 or 3 channels", "[effects]") {
  const Folder folder;
  write_shard(folder.path / "a.h5", small_info(), 0, 9);
  const DataSet rows(folder.path / "a.h5");
  RowReader plain(rows, {}), painted(rows, with(everything()));
  std::vector<std::uint8_t> before(plain.row_bytes()), after(before);
  plain.read(0, 5, before);
  painted.read(0, 5, after);
  CHECK(before != after);
  Painter(with(everything()))
      .paint(0, 5, {before.data(), 5, 4, 3}, std::vector<std::uint8_t>{128, 64, 32});
  CHECK(before == after);
  DataSetInfo four = small_info();
  four.channels = 4;
  CHECK_THROWS_WITH(delivered(four, with(everything()), "set"),
                    Contains("set has images of 4 channels") && Contains("data.brightness"));
}
