#include "lockstep/base/text/numbers.hpp"

#include <charconv>
#include <cmath>
#include <string>

#include <fmt/format.h>

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

std::optional<double> real_number(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stopped == end ? std::optional(value) : std::nullopt;
}

bool looks_like_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const char* end = text.data() + text.size();
  double value = 0;
  const bool digits = text.find_first_of("0123456789") != text.npos;
  const auto result = std::from_chars(text.data(), end, value);
  return digits && result.ptr == end && result.ec != std::errc::invalid_argument;
}

std::uint64_t parse_count(std::string_view text, std::string_view name, std::uint64_t low,
                          std::uint64_t high) {
  const auto value = whole_number<std::uint64_t>(text);
  const bool open = high == std::numeric_limits<std::uint64_t>::max();
  require(value && *value >= low && *value <= high,
          fmt::format("{}: '{}' is not a whole number from {} {}", name, text, low,
                      open ? "on" : fmt::format("to {}", high)));
  return *value;
}

std::uint64_t parse_bytes(std::string_view text, std::string_view name) {
  if (const auto plain = whole_number<std::uint64_t>(text)) return *plain;
  double number = -1;
  const char* end = text.data() + text.size();
  const char* at = std::from_chars(text.data(), end, number, std::chars_format::fixed).ptr;
  std::string unit(at, end);
  if (unit.starts_with(' ')) unit.erase(0, 1);
  if (unit.ends_with('B')) unit.pop_back();
  const bool binary = unit.size() == 2 && unit.back() == 'i';
  if (binary) unit.pop_back();
  constexpr std::string_view prefixes = "kMGT";
  const std::size_t power = prefixes.find(unit == "K" ? "k" : unit);
  const double bytes =
      number * std::pow(binary ? 1024 : 1000, unit.empty() ? 0 : static_cast<double>(power) + 1);
  require(unit.size() <= 1 && power != prefixes.npos && number >= 0 && bytes < 0x1p63,
          fmt::format("{}: '{}' is not a size: write bytes, or 4GB, 500MiB", name, text));
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace lockstep
