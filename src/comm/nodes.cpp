#include "lockstep/comm/nodes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::comm {

RankPlace place_of_process(const std::string& host) {
  const std::string boot = boot_id();
  return {boot.empty() ? host : boot,
          cluster::process_environment()("SLURMD_NODENAME").value_or(host)};
}

Nodes::Nodes(std::vector<RankPlace> places) : places_(std::move(places)) {
  check(!places_.empty(), "a world has at least one rank");
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  for (const RankPlace& place : places_) {
    const std::size_t node =
        known.try_emplace({place.machine, place.node}, nodes_.size()).first->second;
    if (node == nodes_.size()) nodes_.emplace_back();
    local_index_.push_back(nodes_[node].size());
    nodes_[node].push_back(static_cast<int>(node_of_.size()));
    node_of_.push_back(node);
  }
}

const std::string& Nodes::name_of(std::size_t node) const {
  return places_[static_cast<std::size_t>(ranks_of(node).front())].node;
}

std::string Nodes::placement() const {
  std::string text;
  for (const std::vector<int>& ranks : nodes_)
    text += (text.empty() ? "" : ";") + rank_ranges(ranks, ",");
  return text;
}

const std::string& Nodes::machine_of(int rank) const {
  return places_.at(static_cast<std::size_t>(rank)).machine;
}

std::vector<int> Nodes::ranks_on_machine_of(int rank) const {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (places_[i].machine == machine_of(rank)) ranks.push_back(static_cast<int>(i));
  return ranks;
}

Nodes gather_nodes(Control& control, const RankPlace& mine) {
  return Nodes(gather_records(control, mine, "which ranks share a node"));
}

namespace {

/// The axis of `count` places whose neighbours are `apart` ranks from each other.
GridAxis axis_of(int rank, int count, int apart) {
  GridAxis axis{.index = rank / apart % count, .count = count, .ranks = {}};
  for (int other = 0; other < count; ++other)
    axis.ranks.push_back(rank + (other - axis.index) * apart);
  return axis;
}

}  // namespace

Grid::Grid(int rank, const GridShape& shape)
    : replicas(axis_of(rank, shape.replicas, shape.tiles)),
      stages(axis_of(rank, shape.stages, shape.tiles * shape.replicas)),
      tiles(axis_of(rank, shape.tiles, 1)),
      sharers(axis_of(rank, shape.tiles * shape.replicas, 1)) {
  check(rank >= 0 && rank < ranks(), "a rank of the grid");
}

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
