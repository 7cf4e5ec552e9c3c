#include "lockstep/data/data_set_info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/text/words.hpp"
#include "lockstep/data/element_bytes.hpp"

namespace lockstep::data {

std::string say_no_data(const DataSetInfo& info) {
  if (!info.no_data) return "none";
  return std::isnan(*info.no_data) ? "nan" : fmt::format("{}", *info.no_data);
}

std::string say_outputs(std::size_t count, Task task) {
  return counted(count, task == Task::classes ? "class" : task == Task::labels ? "label" : "value");
}

std::string say_values(const DataSetInfo& info) {
  std::string said = choice_name(info.element);
  if (info.no_data) said += " with values of no data";
  if (info.shaping.any())
    said += fmt::format(" whose values change ({})", say_shaping(info.shaping));
  return said;
}

std::optional<std::size_t> find_uncurved(const DataSetInfo& info,
                                         std::span<const std::uint8_t> bytes) {
  const Shaping& shaping = info.shaping;
  if (shaping.curve != Curve::log1p) return std::nullopt;
  const bool has_signs = info.element == Element::i16 || is_float(info.element);
  const bool above =
      !shaping.low.empty() && std::ranges::all_of(shaping.low, [](float low) { return low > -1; });
  if (!has_signs || above) return std::nullopt;
  std::optional<std::size_t> found;
  for_each_value(info.element, bytes, [&](std::size_t i, float value) {
    if (value > -1 || found || stands_for_none(info.no_data, value)) return;
    if (shaping.lowest(i % info.channels) <= -1) found = i;
  });
  return found;
}

std::string say_uncurved(const DataSetInfo& info, std::span<const std::uint8_t> bytes,
                         std::size_t place) {
  float at = 0;
  for_each_value(info.element, bytes, [&](std::size_t i, float value) {
    if (i == place) at = value;
  });
  return fmt::format(
      "has {} in channel {}, where data.curve = log1p has no value: say --data.curve asinh, or set "
      "a lower limit above -1 (data.clip)",
      at, place % info.channels);
}

}  // namespace lockstep::data
