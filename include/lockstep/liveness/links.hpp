#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::liveness {

/// What rank 0 knows about the network between the other nodes. Its own connections reach every
/// rank, but two other nodes may be cut off from each other. When all ranks wait, the first rank of
/// each node tries to reach those of the other nodes, and reports here which it did not reach.
/// **Thread safety:** none; only the heartbeat's thread uses it.
class Links {
 public:
  /// `hosts`: each rank's host.
  explicit Links(std::vector<std::string> hosts);

  /// The first rank of each node, without rank 0's node; ascending.
  const std::vector<int>& first_ranks() const { return first_ranks_; }
  void begin();  ///< a new round of reports
  void heard(int first_rank, const std::vector<int>& not_reached);
  bool complete() const;  ///< all have reported in this round

  /// Two first ranks, the lower one first.
  struct Link {
    int from = 0, to = 0;
  };
  /// Links on which neither side has reached the other.
  std::vector<Link> broken() const;
  /// "the network between node2 (rank 2) and node3 (rank 4) is broken: ..."
  std::string describe(const std::vector<Link>& links) const;
  /// A small set of nodes without which none of these links is needed: the node with the most
  /// broken links first, of equal ones the one with the higher ranks.
  std::vector<std::string> nodes_to_leave_out(std::vector<Link> links) const;

 private:
  std::vector<std::string> hosts_;
  std::vector<int> first_ranks_;
  std::map<int, std::vector<int>> not_reached_;  ///< by the rank that reported
};

/// The first rank of each node, without rank 0's node; ascending.
std::vector<int> first_ranks_of(const std::vector<std::string>& hosts);

}  // namespace lockstep::liveness
