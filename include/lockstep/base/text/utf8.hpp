#pragma once

#include <string>

namespace lockstep {

/// The text with each byte that is not UTF-8 (a path may have some) replaced by U+FFFD, for formats
/// whose readers take nothing else.
std::string valid_utf8(const std::string& text);

/// Whether the texts are the same after that: a name that went through such a format is.
bool same_text(const std::string& a, const std::string& b);

}  // namespace lockstep
