#include "lockstep/liveness/links.hpp"

#include <fmt/format.h>

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
  std::set<std::string> seen;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    if (seen.insert(hosts[rank]).second) first.push_back(static_cast<int>(rank));
  return first;
}

Links::Links(std::vector<std::string> hosts)
    : hosts_(std::move(hosts)), first_ranks_(first_ranks_of(hosts_)) {}

void Links::begin() { reports_.clear(); }

void Links::heard(int first_rank, LinkReport report) {
  if (contains(first_ranks_, first_rank)) reports_[first_rank] = std::move(report);
}

bool Links::complete() const { return reports_.size() == first_ranks_.size(); }

std::vector<Links::Link> Links::broken() const {
  std::vector<Link> links;
  for (const auto& [rank, report] : reports_) {
    for (const int to : report.not_reached) {
      const auto other = reports_.find(to);
      if (rank < to && other != reports_.end() && contains(other->second.not_reached, rank))
        links.push_back({rank, to});
    }
    for (const LinkReport::Lost& lost : report.lost)
      if (contains(first_ranks_, lost.from)) links.push_back({lost.from, rank, lost.bytes});
  }
  return links;
}

std::string Links::describe(const std::vector<Link>& links) const {
  std::vector<Link> cut, narrow;
  for (const Link& link : links) (link.lost_bytes == 0 ? cut : narrow).push_back(link);
  std::string text;
  if (!cut.empty())
    text =
        fmt::format("the network {} is broken: they do not reach each other, though {} hears them",
                    list(cut, "between", "and"), name(0));
  if (!narrow.empty())
    text += fmt::format(
        "{}the network passes small packets only {}: packets of {} bytes do not pass, small ones "
        "do: is the MTU the same everywhere?",
        text.empty() ? "" : "; ", list(narrow, "from", "to"), narrow.front().lost_bytes);
  return text;
}

/// "between a (rank 0) and b (rank 2), between ..."
std::string Links::list(const std::vector<Link>& links, const char* first,
                        const char* second) const {
  constexpr std::size_t most_named = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(links.size(), most_named); ++i)
    text += fmt::format("{}{} {} {} {}", i == 0 ? "" : ", ", first, name(links[i].from), second,
                        name(links[i].to));
  if (links.size() > most_named)
    text += fmt::format(" and {} other pairs", links.size() - most_named);
  return text;
}

std::string Links::name(int rank) const {
  return fmt::format("{} (rank {})", hosts_.at(static_cast<std::size_t>(rank)), rank);
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
