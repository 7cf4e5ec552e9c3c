#include "lockstep/comm/rank_list.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace lockstep::comm {

std::string rank_list(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + rank_ranges(ranks);
}

std::string rank_ranges(const std::vector<int>& ranks, std::string_view separator) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += separator;
    text += last == i ? std::to_string(ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> all_but(std::vector<int> ranks, int world) {
  std::sort(ranks.begin(), ranks.end());
  std::vector<int> others;
  for (int rank = 0; rank < world; ++rank)
    if (!std::binary_search(ranks.begin(), ranks.end(), rank)) others.push_back(rank);
  return others;
}

}  // namespace lockstep::comm
