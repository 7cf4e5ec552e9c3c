#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

/// Levenshtein's distance, in letters: which known word did the user mean?
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace lockstep
