#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/control.hpp"

namespace lockstep::comm {

/// Where one rank runs.
struct RankPlace {
  /// Names the running kernel, whose cores and GPUs the ranks share: containers on one machine have
  /// different host names, and cloned machines the same one.
  std::string machine;
  std::string node;  ///< the scheduler's name for it, else the host's name

  bool operator==(const RankPlace&) const = default;
  static void fields(auto& self, auto&& visit) { visit(self.machine, self.node); }
};

/// This process's place; `host` is its host's name.
RankPlace place_of_process(const std::string& host);

/// Which ranks share a node, and which share a machine. A node is the scheduler's node, on one
/// machine: its ranks share a disk. Mostly it is the whole machine, but several containers or Slurm
/// node daemons may share one. Nodes are numbered in the order of their first ranks.
/// **Thread safety:** any thread may use it; it never changes.
class Nodes {
 public:
  /// One rank on one node.
  Nodes() : Nodes({RankPlace{}}) {}
  /// `places`: one for each rank; at least one.
  explicit Nodes(std::vector<RankPlace> places);

  std::size_t count() const { return nodes_.size(); }
  std::size_t world() const { return places_.size(); }
  std::size_t node_of(int rank) const { return node_of_.at(static_cast<std::size_t>(rank)); }
  const std::vector<std::size_t>& node_of_ranks() const { return node_of_; }
  /// Ascending; the first rank leads the node.
  const std::vector<int>& ranks_of(std::size_t node) const { return nodes_.at(node); }
  const std::string& name_of(std::size_t node) const;
  /// The rank's number on its node: 0, 1, ... in the order of ranks.
  std::size_t local_index(int rank) const {
    return local_index_.at(static_cast<std::size_t>(rank));
  }
  std::size_t local_size(int rank) const { return ranks_of(node_of(rank)).size(); }
  bool leads_node(int rank) const { return local_index(rank) == 0; }

  /// Which ranks share a node, without the nodes' names: "0-3;4-7".
  std::string placement() const;

  const std::string& machine_of(int rank) const;
  /// All ranks on this rank's machine, on any of its nodes, ascending.
  std::vector<int> ranks_on_machine_of(int rank) const;

 private:
  std::vector<RankPlace> places_;
  std::vector<std::vector<int>> nodes_;
  std::vector<std::size_t> node_of_, local_index_;
};

/// Collective.
Nodes gather_nodes(Control& control, const RankPlace& mine);

}  // namespace lockstep::comm
