#include "lockstep/base/text/numbers.hpp"

#include <charconv>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

namespace lockstep {

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end || text.front() == '-') return std::nullopt;
  return value;
}

template std::optional<int> whole_number(std::string_view);
template std::optional<long> whole_number(std::string_view);
template std::optional<std::uint64_t> whole_number(std::string_view);

std::uint64_t parse_count(std::string_view text, std::string_view name, std::uint64_t low,
                          std::uint64_t high) {
  const auto value = whole_number<std::uint64_t>(text);
  const bool open = high == std::numeric_limits<std::uint64_t>::max();
  require(value && *value >= low && *value <= high,
          fmt::format("{}: '{}' is not a whole number from {} {}", name, text, low,
                      open ? "on" : fmt::format("to {}", high)));
  return *value;
}

}  // namespace lockstep
