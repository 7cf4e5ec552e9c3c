#include "lockstep/comm/agreement.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <vector>

#include "lockstep/comm/rank_list.hpp"

namespace lockstep::comm {

namespace {

std::string describe_disagreement(const std::vector<std::string>& said) {
  std::map<std::string, std::vector<int>> ranks_by_word;
  for (std::size_t rank = 0; rank < said.size(); ++rank)
    ranks_by_word[said[rank]].push_back(static_cast<int>(rank));
  if (ranks_by_word.size() == 1) return "";
  const auto more = [](const auto& a, const auto& b) {  // ties: the lowest rank first
    return a.second.size() != b.second.size() ? a.second.size() < b.second.size()
                                              : a.second.front() > b.second.front();
  };
  const auto common = std::max_element(ranks_by_word.begin(), ranks_by_word.end(), more);
  std::string text = fmt::format("{} on {}", common->first, rank_list(common->second));
  const char* separator = ", but ";
  for (const auto& [word, ranks] : ranks_by_word) {
    if (word == common->first) continue;
    text += fmt::format("{}{} on {}", separator, word, rank_list(ranks));
    separator = ", ";
  }
  return text;
}

}  // namespace

std::string disagreement(Control& control, const std::string& mine, std::string_view phase) {
  return control.combine(mine, phase, describe_disagreement);
}

}  // namespace lockstep::comm
