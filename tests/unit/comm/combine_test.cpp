#include "comm/combine.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "lockstep/base/half.hpp"
#include "tests/support/laws/compiler_half.hpp"

using namespace lockstep;
using namespace lockstep::comm;

namespace {

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

/// Floats of all sizes, and those next to the borders between f16's ranges and at half steps.
std::vector<float> awkward_floats() {
  std::vector<float> values;
  for (const double border : {65504.0, 65519.9, 65520.0, 65536.0, 0x1p-14, 0x1p-24, 0x1p-25,
                              0x1p-26, 0.0, 1.0, 2048.0, 3.4e38})
    for (const double factor : {1.0, 1 + 0x1p-23, 1 - 0x1p-24, 1 + 0x1p-11, 1 + 0x1p-8, 1.5})
      for (const double sign : {1.0, -1.0})
        values.push_back(static_cast<float>(sign * border * factor));
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(-std::numeric_limits<float>::infinity());
  std::mt19937 random(7);
  for (int i = 0; i < 2000000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  return values;
}

/// Adds or compares as the ranks of a group do.
template <class Value>
std::vector<Value> combined(ElementType type, Reduction reduction, std::vector<Value> mine,
                            const std::vector<std::vector<Value>>& parts) {
  const Combine how = combine_of(type, reduction);
  std::vector<float> total(mine.size());
  if (how.widen) how.widen(total.data(), mine.data(), mine.size());
  for (const std::vector<Value>& part : parts)
    how.combine(how.widen ? static_cast<void*>(total.data()) : mine.data(), part.data(),
                part.size());
  if (how.round) how.round(mine.data(), total.data(), mine.size());
  return mine;
}

}  // namespace

TEST_CASE("every float of 16 bits is widened as the compiler does it", "[combine]") {
  bool right = true;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    right =
        right && same(widen_f16(bits), static_cast<float>(std::bit_cast<test::laws::Half>(bits)));
    right = right && same(widen_bf16(bits), std::bit_cast<float>(i << 16));
    // What is exact stays, NaN included.
    const float f16 = widen_f16(bits), bf16 = widen_bf16(bits);
    right = right && same(widen_f16(round_to_f16(f16)), f16);
    right = right && same(widen_bf16(round_to_bf16(bf16)), bf16);
  }
  REQUIRE(right);
}

TEST_CASE("floats are rounded to the nearest of 16 bits, ties to even", "[combine]") {
  bool right = true;
  for (const float value : awkward_floats()) {
    const float expected = static_cast<float>(static_cast<test::laws::Half>(value));
    right = right && same(widen_f16(round_to_f16(value)), expected);
    if (!std::isfinite(value) || std::abs(value) > 3.3e38f) continue;
    // The two neighbours of the upper half; their distance from `value` is exact in double.
    const std::uint32_t below = std::bit_cast<std::uint32_t>(value) & 0xffff0000u;
    const double low = std::bit_cast<float>(below), high = std::bit_cast<float>(below + 0x10000u);
    const double to_low = std::abs(value - low), to_high = std::abs(value - high);
    const bool up = to_high < to_low || (to_high == to_low && (below >> 16 & 1) == 1);
    right = right && same(widen_bf16(round_to_bf16(value)), static_cast<float>(up ? high : low));
  }
  REQUIRE(right);
  REQUIRE(std::isinf(widen_bf16(round_to_bf16(3.4e38f))));
}

TEST_CASE("integers wrap around, and a maximum keeps NaN", "[combine]") {
  const auto most = std::numeric_limits<std::int32_t>::max();
  REQUIRE(combined<std::int32_t>(ElementType::i32, Reduction::sum, {most, -1, 5}, {{1, -1, 6}}) ==
          std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::min(), -2, 11});
  REQUIRE(combined<std::int64_t>(ElementType::i64, Reduction::max, {-7, 1}, {{-9, 4}, {-8, 3}}) ==
          std::vector<std::int64_t>{-7, 4});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto largest = combined<float>(ElementType::f32, Reduction::max, {nan, 1, 2, -3},
                                       {{1, nan, 1, -4}, {2, 2, 3, -5}});
  REQUIRE(std::isnan(largest[0]));
  REQUIRE(std::isnan(largest[1]));
  REQUIRE(largest[2] == 3);
  REQUIRE(largest[3] == -3);
  for (const ElementType type : {ElementType::f16, ElementType::bf16}) {
    const auto round = [&](float value) {
      return type == ElementType::f16 ? round_to_f16(value) : round_to_bf16(value);
    };
    const auto widen = [&](std::uint16_t bits) {
      return type == ElementType::f16 ? widen_f16(bits) : widen_bf16(bits);
    };
    const auto found = combined<std::uint16_t>(
        type, Reduction::max, {round(nan), round(-2), round(0.5f)},
        {{round(4), round(-1), round(0.25f)}, {round(1), round(nan), round(-8)}});
    REQUIRE(std::isnan(widen(found[0])));
    REQUIRE(std::isnan(widen(found[1])));
    REQUIRE(widen(found[2]) == 0.5f);
  }
}
