#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Without blanks at its ends.
std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n");

/// As a word for a shell: in single quotes where it needs them.
std::string shell_word(std::string_view text);

}  // namespace lockstep
