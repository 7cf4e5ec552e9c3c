#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace lockstep {

/// The whole number that all of `text` is: decimal digits and nothing else. None for every other
/// text (signs, blanks, fractions) and for what the type cannot hold. For int, long and
/// std::uint64_t.
template <class Number>
std::optional<Number> whole_number(std::string_view text);

/// The whole number that all of `text` is. Throws InputError "NAME: 'TEXT' is not a whole number
/// from LOW to HIGH" for everything else: signs, blanks, fractions, and what does not fit.
std::uint64_t parse_count(std::string_view text, std::string_view name, std::uint64_t low = 0,
                          std::uint64_t high = std::numeric_limits<std::uint64_t>::max());

}  // namespace lockstep
