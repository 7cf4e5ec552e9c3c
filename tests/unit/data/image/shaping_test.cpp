#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "data/image/percentiles.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/data/element_bytes.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace lockstep::test::shaping {
namespace {

std::uint32_t distance(float a, float b) {
  const auto x = std::bit_cast<std::uint32_t>(a), y = std::bit_cast<std::uint32_t>(b);
  return x > y ? x - y : y - x;
}

/// Linear between neighbours, of values in order.
double percentile_of(std::vector<float> values, double percent) {
  std::sort(values.begin(), values.end());
  const double place = percent / 100 * static_cast<double>(values.size() - 1);
  const auto at = static_cast<std::size_t>(place);
  const double first = values[at], second = values[std::min(at + 1, values.size() - 1)];
  return first + (place - static_cast<double>(at)) * (second - first);
}

}  // namespace

TEST_CASE("log1p and asinh are the float that is nearest to the C library's double",
          "[data][shaping]") {
  std::size_t tried = 0, other = 0;
  const auto compare = [&](Curve curve, float value) {
    const double v = static_cast<double>(value);
    const auto want = static_cast<float>(curve == Curve::log1p ? std::log1p(v) : std::asinh(v));
    const float got = curved(curve, value);
    CAPTURE(choice_name(curve), value, got, want);
    if (distance(got, want) > 1) FAIL("more than one float away");
    ++tried;
    other += got != want;
  };
  for (std::uint32_t bits = 1; bits < 0x7f800000; bits += 4099) {
    const auto value = std::bit_cast<float>(bits);
    compare(Curve::log1p, value);
    compare(Curve::asinh, value);
    compare(Curve::asinh, -value);
    if (value < 1) compare(Curve::log1p, -value);
  }
  for (int level = 0; level < 65536; ++level) compare(Curve::log1p, static_cast<float>(level));
  CHECK(tried > 1'800'000);
  CHECK(other * 1'000'000 <= tried);
}

TEST_CASE("log1p of -1 and less is no number, and no curve changes 0", "[data][shaping]") {
  CHECK(std::isnan(curved(Curve::log1p, -1)));
  CHECK(std::isnan(curved(Curve::log1p, -1e30f)));
  for (const Curve curve : {Curve::linear, Curve::log1p, Curve::asinh})
    CHECK(curved(curve, 0) == 0);
  CHECK(shaped(Curve::log1p, -7, 0, 5) == 0);
  CHECK(shaped(Curve::linear, 7, 0, 5) == 5);
  CHECK(std::abs(unshaped({Curve::asinh, {}, {}}, 0, curved(Curve::asinh, 1234)) - 1234) < 1e-3f);
}

TEST_CASE("limits are numbers or percentiles, of all channels or of each", "[data][shaping]") {
  CHECK(asked_limits("").empty());
  CHECK(asked_limits("0,1;2,30").size() == 2);
  CHECK(asks_percentiles("0,p99.5"));
  CHECK_FALSE(asks_percentiles("-1e-3,5"));
  for (const char* wrong : {"1", "1,2,3", "2,1", "1,1", "p98,p2", "p-1,p50", "p2,p101", "a,b",
                            "nan,1", "0,inf", "0,1;", ";", "0,1e39"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(asked_limits(wrong), InputError);
  }
  const Shaping each{Curve::asinh, {0.1f, -2}, {1e-30f, 3}}, alike{{}, {0, 0}, {2.5f, 2.5f}};
  CHECK(limits_text(alike) == "0,2.5");
  CHECK(say_shaping(alike) == "clip 0,2.5");
  const std::vector<AskedLimits> read =
      asked_limits(limits_text(Shaping{{}, {0.1f, -2}, {1e3f, 3}}));
  CHECK(static_cast<float>(read[0].low.number) == 0.1f);
  CHECK(say_shaping(each).ends_with("curve asinh"));
}

TEST_CASE("percentiles are exact for every element and number of channels, without no data",
          "[data][shaping]") {
  for (const Element element :
       {Element::u8, Element::u16, Element::i16, Element::f16, Element::f32})
    for (const std::size_t channels : {1u, 3u, 12u, 13u})
      for (const bool sparse : {false, true}) {
        CAPTURE(choice_name(element), channels, sparse);
        DataSetInfo info{.height = 5, .width = 7, .channels = channels, .element = element};
        if (sparse) info.no_data = is_float(element) ? std::numeric_limits<float>::quiet_NaN() : 7;
        std::vector<std::vector<std::uint8_t>> rows(9);
        std::vector<std::vector<float>> values(channels);
        for (std::size_t r = 0; r < rows.size(); ++r)
          for (std::size_t i = 0; i < info.row_values(); ++i) {
            const std::uint64_t bits = draw(3, r, i, Draw::synth);
            const bool none = sparse && bits % 5 == 0;
            const float number = static_cast<float>(bits >> 8 & 0xfff) - 2048,
                        value = is_float(element) ? number / 512 * number : number * 8;
            append_element(element, none ? *info.no_data : value, rows[r]);
          }
        for (const auto& row : rows)
          for_each_value(element, row, [&](std::size_t i, float value) {
            if (!stands_for_none(info.no_data, value)) values[i % channels].push_back(value);
          });
        const double percents[] = {0, 2, 33.3, 50, 98, 100};
        const auto found = percentiles(info, percents, [&](const auto& use) {
          for (const auto& row : rows) use(row);
        });
        for (std::size_t p = 0; p < std::size(percents); ++p)
          for (std::size_t c = 0; c < channels; ++c)
            CHECK(found[p][c] == percentile_of(values[c], percents[p]));
      }
}

}  // namespace lockstep::test::shaping
