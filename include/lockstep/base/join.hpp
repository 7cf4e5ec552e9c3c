#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// The elements with `between` between them, as fmt::join does it, of which each file that uses it
/// compiles another half a second.
std::string join(std::span<const std::string> list, std::string_view between);
std::string join(std::span<const std::uint64_t> list, std::string_view between);
std::string join(std::span<const unsigned long long> list, std::string_view between);
std::string join(std::span<const int> list, std::string_view between);
std::string join(std::span<const float> list, std::string_view between);
std::string join(std::span<const double> list, std::string_view between);

}  // namespace lockstep
