#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// The elements with `between` between them, like fmt::join, which would add half a second to the
/// compile time of each file that uses it.
std::string join(std::span<const std::string> list, std::string_view between);
std::string join(std::span<const std::uint64_t> list, std::string_view between);
std::string join(std::span<const unsigned long long> list, std::string_view between);
std::string join(std::span<const int> list, std::string_view between);
std::string join(std::span<const float> list, std::string_view between);
std::string join(std::span<const double> list, std::string_view between);

/// "1 rank", "2 ranks", "3 classes", "4 batches": for nouns whose plural ends with s.
std::string counted(std::size_t count, std::string_view noun);

}  // namespace lockstep
