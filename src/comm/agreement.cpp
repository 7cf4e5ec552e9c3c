#include "lockstep/comm/agreement.hpp"

#include <fmt/format.h>

#include <map>

#include "lockstep/comm/nodes.hpp"

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

bool has_work(Communicator& group, Elements data, std::string_view name, device::Stream& stream) {
  if (&stream != &group.network()) [[unlikely]]
    check(false, fmt::format("{}: collectives go through the network stream", name));
  if (group.world() == 1 || data.count == 0) return false;
  if (!data.data) [[unlikely]]
    check(false, fmt::format("{}: there is no memory for {} elements", name, data.count));
  return true;
}

std::size_t chunk_size(Communicator& group, Elements data, std::string_view name) {
  const auto world = static_cast<std::size_t>(group.world());
  if (data.count % world != 0) [[unlikely]]
    check(false,
          fmt::format("{}: {} elements cannot be cut into one equal chunk for each of {} ranks",
                      name, data.count, world));
  return data.count / world;
}

void check_reducible(Elements data, std::string_view name) {
  if (data.type == ElementType::i8) [[unlikely]]
    check(false, fmt::format("{}: elements of 8 bits have no sum and no maximum: gather them, or "
                             "cast them to floats",
                             name));
}

void check_root(Communicator& group, int root, std::string_view name) {
  if (root < 0 || root >= group.world()) [[unlikely]]
    check(false,
          fmt::format("{}: rank {} is outside of this group of {}", name, root, group.world()));
}

void check_peer(Communicator& group, int peer, std::string_view name) {
  check_root(group, peer, name);
  if (peer == group.rank() && group.world() > 1) [[unlikely]]
    check(false, fmt::format("{}: rank {} would exchange data with itself", name, peer));
}

}  // namespace lockstep::comm
