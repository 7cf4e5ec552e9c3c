#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Without blanks at its ends.
std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n");

/// As a word for a shell: in single quotes where it needs them.
std::string shell_word(std::string_view text);

/// The elements with `between` between them, like fmt::join, which would add half a second to the
/// compile time of each file that uses it.
std::string join(std::span<const std::string> list, std::string_view between);
std::string join(std::span<const std::uint64_t> list, std::string_view between);
std::string join(std::span<const unsigned long long> list, std::string_view between);
std::string join(std::span<const int> list, std::string_view between);
std::string join(std::span<const float> list, std::string_view between);
std::string join(std::span<const double> list, std::string_view between);

/// The names of a list "a,b".
std::vector<std::string> listed(const std::string& list);

/// "1 rank", "2 ranks", "3 classes", "4 batches": for nouns whose plural ends with s.
std::string counted(std::size_t count, std::string_view noun);

/// The text with each byte that is not UTF-8 (a path may have some) replaced by U+FFFD, for formats
/// whose readers take nothing else.
std::string valid_utf8(const std::string& text);

/// Whether the texts are the same after that: a name that went through such a format is.
bool same_text(const std::string& a, const std::string& b);

/// A text for people, whose names may have any bytes: control characters, and bytes that are not
/// UTF-8, are shown as \x1b; line ends and tabs stay.
std::string printable(std::string_view text);

/// The same on one line: a line end is shown as \n, a tab as \t.
std::string one_line(std::string_view text);

/// For names that look alike: each byte that is not a printable ASCII character as "\xc3".
std::string as_bytes(std::string_view text);

/// Levenshtein's distance, in letters: which known word did the user mean?
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The most letters in which a word of this length may differ by a typing error.
std::size_t most_typing_errors(std::size_t letters);

/// In small letters, and with '-' for '_': words are compared in this form.
std::string plain_form(std::string_view word);

/// The known word that `word` is most likely meant to be; empty if none is similar.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// "; did you mean '--batch'?", or nothing if no known word is similar.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace lockstep
