#include "lockstep/comm/rank_list.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace lockstep::comm {

std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  const char* separator = " ";
  for (std::size_t i = 0; i < ranks.size(); separator = ", ") {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += last == i ? fmt::format("{}{}", separator, ranks[i])
                      : fmt::format("{}{}-{}", separator, ranks[i], ranks[last]);
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
