#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "lockstep/base/half.hpp"
#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// Appends the bytes of an element: of whole numbers the one that is nearest to `value`.
inline void append_element(Element element, float value, std::vector<std::uint8_t>& to) {
  const auto add = [&](auto number) {
    const auto bytes = std::bit_cast<std::array<std::uint8_t, sizeof number>>(number);
    to.insert(to.end(), bytes.begin(), bytes.end());
  };
  const auto add_whole = [&]<class T>(std::type_identity<T>) {
    using Range = std::numeric_limits<T>;
    const float within = std::clamp(value, float{Range::min()}, float{Range::max()});
    add(static_cast<T>(std::lround(within)));
  };
  switch (element) {
    case Element::u8:
      return add_whole(std::type_identity<std::uint8_t>());
    case Element::u16:
      return add_whole(std::type_identity<std::uint16_t>());
    case Element::i16:
      return add_whole(std::type_identity<std::int16_t>());
    case Element::f16:
      return add(round_to_f16(value));
    case Element::f32:
      return add(value);
  }
}

/// Calls `use` with the place and the value of each element of some rows, or of parts of them.
template <class Use>
void for_each_value(Element element, std::span<const std::uint8_t> bytes, Use&& use) {
  const auto each = [&]<class T>(std::type_identity<T>, auto&& widened) {
    for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
      T stored;  // it may be unaligned
      std::memcpy(&stored, bytes.data() + i * sizeof(T), sizeof(T));
      use(i, widened(stored));
    }
  };
  const auto same = [](auto stored) { return static_cast<float>(stored); };
  switch (element) {
    case Element::u8:
      return each(std::type_identity<std::uint8_t>(), same);
    case Element::u16:
      return each(std::type_identity<std::uint16_t>(), same);
    case Element::i16:
      return each(std::type_identity<std::int16_t>(), same);
    case Element::f16:
      return each(std::type_identity<std::uint16_t>(), [](auto bits) { return widen_f16(bits); });
    case Element::f32:
      return each(std::type_identity<float>(), same);
  }
}

/// Whether a value stands for no data; see DataSetInfo::no_data.
inline bool stands_for_none(const std::optional<float>& no_data, float value) {
  return no_data && (value == *no_data || std::isnan(value));
}

/// The first value whose curve has none, by its place in `bytes`: log1p of -1 or less.
std::optional<std::size_t> find_uncurved(const DataSetInfo& info,
                                         std::span<const std::uint8_t> bytes);
/// "has -2 in channel 1, where data.curve = log1p has no value: ..."
std::string say_uncurved(const DataSetInfo& info, std::span<const std::uint8_t> bytes,
                         std::size_t place);

/// What normalisation makes 0: the mean, as a value before its shape was changed.
inline float unshaped(const Shaping& shaping, std::size_t channel, float value) {
  if (!shaping.any()) return value;
  return std::clamp(static_cast<float>(uncurved(shaping.curve, static_cast<double>(value))),
                    shaping.lowest(channel), shaping.highest(channel));
}

}  // namespace lockstep::data
