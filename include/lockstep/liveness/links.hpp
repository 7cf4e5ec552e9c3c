#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::liveness {

/// What the first rank of a node has found out about the links to the others' first ranks.
struct LinkReport {
  struct Lost {
    int from = 0;
    std::uint32_t bytes = 0;  ///< of the larger packets, as the network sees them

    static void fields(auto& self, auto&& visit) { visit(self.from, self.bytes); }
  };
  std::vector<int> not_reached;  ///< no connection to these
  std::vector<Lost> lost;        ///< small packets of these came, larger ones did not

  static void fields(auto& self, auto&& visit) { visit(self.not_reached, self.lost); }
};

/// What rank 0 knows about the network between the nodes. Its own connections reach every rank, but
/// two other nodes may be cut off from each other, and a network that loses large packets lets the
/// heartbeats pass. When all ranks wait, the first rank of each node tries to reach those of the
/// other nodes, and reports here.
/// **Thread safety:** none; only the heartbeat's thread uses it.
class Links {
 public:
  /// `hosts`: each rank's host.
  explicit Links(std::vector<std::string> hosts);

  /// The first rank of each node; ascending.
  const std::vector<int>& first_ranks() const { return first_ranks_; }
  void begin();  ///< a new round of reports
  void heard(int first_rank, LinkReport report);
  bool complete() const;  ///< all have reported in this round

  /// Two first ranks.
  struct Link {
    int from = 0, to = 0;
    std::uint32_t lost_bytes = 0;  ///< packets of this size do not pass; 0: none passes
  };
  /// Links on which neither side has reached the other (the lower rank first), and those on which
  /// only small packets pass.
  std::vector<Link> broken() const;
  /// "the network between node2 (rank 2) and node3 (rank 4) is broken: ...", "the network passes
  /// small packets only from node1 (rank 0) to node2 (rank 2): ..."
  std::string describe(const std::vector<Link>& links) const;
  /// A small set of nodes without which none of these links is needed: the node with the most
  /// broken links first, of equal ones the one with the higher ranks.
  std::vector<std::string> nodes_to_leave_out(std::vector<Link> links) const;

 private:
  std::string list(const std::vector<Link>& links, const char* first, const char* second) const;
  std::string name(int rank) const;

  std::vector<std::string> hosts_;
  std::vector<int> first_ranks_;
  std::map<int, LinkReport> reports_;  ///< by the rank that reported
};

/// The first rank of each node; ascending.
std::vector<int> first_ranks_of(const std::vector<std::string>& hosts);

}  // namespace lockstep::liveness
