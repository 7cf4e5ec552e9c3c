#include "lockstep/liveness/links.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

namespace lockstep::liveness {
namespace {

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

std::vector<int> first_ranks_of(const std::vector<std::string>& hosts) {
  std::vector<int> first;
  std::set<std::string> seen{hosts.front()};
  for (std::size_t rank = 1; rank < hosts.size(); ++rank)
    if (seen.insert(hosts[rank]).second) first.push_back(static_cast<int>(rank));
  return first;
}

Links::Links(std::vector<std::string> hosts)
    : hosts_(std::move(hosts)), first_ranks_(first_ranks_of(hosts_)) {}

void Links::begin() { not_reached_.clear(); }

void Links::heard(int first_rank, const std::vector<int>& not_reached) {
  if (contains(first_ranks_, first_rank)) not_reached_[first_rank] = not_reached;
}

bool Links::complete() const { return not_reached_.size() == first_ranks_.size(); }

std::vector<Links::Link> Links::broken() const {
  std::vector<Link> links;
  for (const auto& [from, missed] : not_reached_)
    for (const int to : missed) {
      const auto other = not_reached_.find(to);
      if (from < to && other != not_reached_.end() && contains(other->second, from))
        links.push_back({from, to});
    }
  return links;
}

std::string Links::describe(const std::vector<Link>& links) const {
  const auto name = [this](int rank) {
    return fmt::format("{} (rank {})", hosts_.at(static_cast<std::size_t>(rank)), rank);
  };
  constexpr std::size_t most_named = 8;
  std::string text = "the network between ";
  for (std::size_t i = 0; i < std::min(links.size(), most_named); ++i)
    text += fmt::format("{}{} and {}", i == 0 ? "" : ", between ", name(links[i].from),
                        name(links[i].to));
  if (links.size() > most_named)
    text += fmt::format(" and {} other pairs", links.size() - most_named);
  return text +
         fmt::format(" is broken: they do not reach each other, though {} hears them", name(0));
}

std::vector<std::string> Links::nodes_to_leave_out(std::vector<Link> links) const {
  std::vector<std::string> nodes;
  while (!links.empty()) {
    std::map<int, int> count;
    for (const Link& link : links) ++count[link.from], ++count[link.to];
    int worst = links.front().to;
    for (const auto& [rank, times] : count)
      if (times >= count[worst]) worst = rank;
    nodes.push_back(hosts_.at(static_cast<std::size_t>(worst)));
    std::erase_if(links, [&](const Link& link) { return link.from == worst || link.to == worst; });
  }
  return nodes;
}

}  // namespace lockstep::liveness
