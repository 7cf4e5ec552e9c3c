#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

/// "rank 3" or "ranks 0, 2-5": for messages, also in a large world. `ranks` ascends.
std::string rank_list(const std::vector<int>& ranks);

/// "0, 2-5": the same without the word.
std::string rank_ranges(const std::vector<int>& ranks, std::string_view separator = ", ");

/// The ranks of the world that are not in `ranks` (in any order), ascending.
std::vector<int> all_but(std::vector<int> ranks, int world);

}  // namespace lockstep::comm
