#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/arguments.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/config/config.hpp"

namespace lockstep::app {

struct CountRange {
  std::uint64_t low = 0, high = std::numeric_limits<std::uint64_t>::max();
};

template <std::integral T>
void take_count(T& value, std::uint64_t count) {
  value = static_cast<T>(count);
}
template <std::integral T>
void take_count(std::optional<T>& value, std::uint64_t count) {
  value = static_cast<T>(count);
}

/// An option that takes a whole number within `range`, which must fit T, as strictly as the keys of
/// a configuration: CLI11 alone reads "-1" as 2^64 - 1 and "010" as 8. The help shows the default
/// unless it is 0 or absent. Parsing throws InputError naming the option; `value` must live as long
/// as the app.
template <class T>
Argument add_count(Arguments app, const std::string& names, T& value, CountRange range,
                   const std::string& help) {
  Argument option = app.add_taken(
      names,
      [&value, name = names.substr(0, names.find(',')), range](const std::string& text) {
        take_count(value, parse_count(text, name, range.low, range.high));
      },
      help);
  option.called("NUMBER");
  if constexpr (std::integral<T>)
    if (value != 0) option.shows(std::to_string(value));
  return option;
}

/// The numbers of a list "1,2,4". Throws InputError naming the option.
inline std::vector<std::size_t> counts_of(const std::string& list, const char* option) {
  std::vector<std::size_t> counts;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    counts.push_back(parse_count(list.substr(at, end - at), option, 1, 1 << 24));
    at = end + 1;
  }
  return counts;
}

/// Ranges that several commands share.
constexpr CountRange a_batch{1, 1 << 20}, threads_or_all{0, config::most_threads};

}  // namespace lockstep::app
