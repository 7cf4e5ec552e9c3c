#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// The text with each byte that is not UTF-8 (a path may have some) replaced by U+FFFD, for formats
/// whose readers take nothing else.
std::string valid_utf8(const std::string& text);

/// For messages: on one line, with control characters as "\n" or "\x1b", so that no name can look
/// like another message.
std::string one_line(std::string_view text);

/// For names that look alike: each byte that is not a printable ASCII character as "\xc3".
std::string as_bytes(std::string_view text);

/// Whether the texts are the same after that: a name that went through such a format is.
bool same_text(const std::string& a, const std::string& b);

}  // namespace lockstep
