#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

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
