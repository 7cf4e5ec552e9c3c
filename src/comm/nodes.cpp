#include "lockstep/comm/nodes.hpp"

#include <map>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/comm/rank_list.hpp"
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

}  // namespace lockstep::comm
