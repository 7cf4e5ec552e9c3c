#include "lockstep/base/count.hpp"

#include <charconv>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

namespace lockstep {

std::uint64_t parse_count(std::string_view text, std::string_view name, std::uint64_t low,
                          std::uint64_t high) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  const bool fits = error == std::errc() && stopped == end && value >= low && value <= high;
  const bool open = high == std::numeric_limits<std::uint64_t>::max();
  require(fits, fmt::format("{}: '{}' is not a whole number from {} {}", name, text, low,
                            open ? "on" : fmt::format("to {}", high)));
  return value;
}

}  // namespace lockstep
