#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// A text for people, whose names may have any bytes: control characters, and bytes that are not
/// UTF-8, are shown as \x1b; line ends and tabs stay.
std::string printable(std::string_view text);

/// The same on one line: a line end is shown as \n, a tab as \t.
std::string one_line(std::string_view text);

/// For names that look alike: each byte that is not a printable ASCII character as "\xc3".
std::string as_bytes(std::string_view text);

}  // namespace lockstep
