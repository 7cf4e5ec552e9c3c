#pragma once

#include <string>
#include <vector>

namespace lockstep::comm {

/// "rank 3" or "ranks 0, 2-5": for messages, also in a large world. `ranks` ascends.
std::string rank_list(const std::vector<int>& ranks);

/// The ranks of the world that are not in `ranks` (in any order), ascending.
std::vector<int> all_but(std::vector<int> ranks, int world);

}  // namespace lockstep::comm
