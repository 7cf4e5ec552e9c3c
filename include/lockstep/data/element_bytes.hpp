#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
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

}  // namespace lockstep::data
