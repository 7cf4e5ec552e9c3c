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

// Which part of a training each rank has. Ranks are replicas of one network today; where a network
// is cut into stages, or its images into tiles, several ranks make up one replica.

/// How many parts a training has each way; the ranks are their product.
struct GridShape {
  int replicas = 1, stages = 1, tiles = 1;
};

/// A rank's place along one way of the grid, and its group: the ranks that are elsewhere along this
/// way only. A group may begin at any rank and cross nodes.
struct GridAxis {
  int index = 0, count = 1;
  std::vector<int> ranks = {0};  ///< of the group, by index; ascending

  /// Differs between the groups of an axis: world.split(colour(), index, name) makes them.
  int colour() const { return ranks.front(); }
};

/// The place of one rank.
///
/// - **Replicas** train on different rows of each batch, and hold equal weights. What is shared by
///   a batch asks for them, not for ranks.
/// - **Stages** hold consecutive parts of the network, and pass activations to each other.
/// - **Tiles** hold the same part of the network, for different parts of each image.
///
/// What talks most is nearest: in the order of ranks come first the tiles of a stage, then the
/// replicas, then the stages.
struct Grid {
  Grid() = default;  ///< one rank does everything
  /// REQUIRES: `rank` is one of the shape's.
  Grid(int rank, const GridShape& shape);

  GridAxis replicas, stages, tiles;
  /// Replicas and tiles together: the ranks with the same weights, whose gradients are added up.
  GridAxis sharers;
  int ranks() const { return replicas.count * stages.count * tiles.count; }
  /// Of the first stage and tile: it speaks for the replica where all of its ranks must do alike.
  int first_rank_of(int replica) const { return replica * tiles.count; }
};

/// "rank 3" or "ranks 0, 2-5": for messages, also in a large world. `ranks` ascends.
std::string rank_list(const std::vector<int>& ranks);

/// "0, 2-5": the same without the word.
std::string rank_ranges(const std::vector<int>& ranks, std::string_view separator = ", ");

/// The ranks of the world that are not in `ranks` (in any order), ascending.
std::vector<int> all_but(std::vector<int> ranks, int world);

}  // namespace lockstep::comm
