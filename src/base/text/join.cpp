#include "lockstep/base/text/join.hpp"

#include <fmt/format.h>

namespace lockstep {

std::string join(std::span<const std::string> list, std::string_view between) {
  return fmt::format("{}", fmt::join(list, between));
}

std::string join(std::span<const std::uint64_t> list, std::string_view between) {
  return fmt::format("{}", fmt::join(list, between));
}

std::string join(std::span<const unsigned long long> list, std::string_view between) {
  return fmt::format("{}", fmt::join(list, between));
}

std::string join(std::span<const int> list, std::string_view between) {
  return fmt::format("{}", fmt::join(list, between));
}

std::string join(std::span<const float> list, std::string_view between) {
  return fmt::format("{}", fmt::join(list, between));
}

std::string join(std::span<const double> list, std::string_view between) {
  return fmt::format("{}", fmt::join(list, between));
}

std::string counted(std::size_t count, std::string_view noun) {
  const bool hisses = noun.ends_with('s') || noun.ends_with("tch");
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : hisses ? "es" : "s");
}

}  // namespace lockstep
