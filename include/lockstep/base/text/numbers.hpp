#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace lockstep {

/// Parses `text` as a whole number: decimal digits and nothing else. Returns nothing for any other
/// text (signs, blanks, fractions) and for numbers that the type cannot hold. For int, long and
/// std::uint64_t.
template <class Number>
std::optional<Number> whole_number(std::string_view text);

/// Parses `text` as a number: -1.5, 1e3, also inf and nan. Returns nothing for any other text, and
/// for numbers that are too large or small.
std::optional<double> real_number(std::string_view text);

/// True for -1, +3, 0.0, .5, 1e3: no one calls a class so. False for "nan" and "inf".
bool looks_like_number(std::string_view text);

/// Parses `text` as a whole number. Throws InputError "NAME: 'TEXT' is not a whole number from LOW
/// to HIGH" for everything else: signs, blanks, fractions, and numbers out of range.
std::uint64_t parse_count(std::string_view text, std::string_view name, std::uint64_t low = 0,
                          std::uint64_t high = std::numeric_limits<std::uint64_t>::max());

/// Parses a size as people write it: "4GB", "500MiB", "1.5 TB", or bytes without a unit. kB, MB, GB
/// and TB are powers of 1000, KiB to TiB of 1024; the B may be missing. Throws InputError naming
/// NAME and TEXT.
std::uint64_t parse_bytes(std::string_view text, std::string_view name);

}  // namespace lockstep
