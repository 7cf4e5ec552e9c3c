#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/nodes/node_look.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/cluster/topology/machine.hpp"

namespace lockstep::cluster {

/// What was measured on a node's disk, or on the file system of a directory.
struct DiskFigures {
  double write_bytes_per_s = 0;  ///< synchronised
  double free_bytes = 0;
  std::string error;  ///< why it cannot be used; empty when it can

  static void fields(auto& self, auto&& visit) {
    visit("write_bytes_per_s", self.write_bytes_per_s);
    visit("free_bytes", self.free_bytes);
    visit("error", self.error);
  }
};

/// What was measured on one node, by all its ranks together.
struct NodeFigures {
  std::string host;             ///< the scheduler's name for it
  double flops_per_s = 0;       ///< of its slowest core, by CPU time used (plain SSE)
  double cpu_share = 1;         ///< of its cores' time that the measuring threads got, 0 to 1
  double copy_bytes_per_s = 0;  ///< memory to memory, all its cores together
  double memory_bytes = 0;      ///< size of its memory
  std::optional<DiskFigures> disk;
  /// What should be the same on all nodes: versions, limits, what is mounted.
  std::map<std::string, std::string> facts;

  static void fields(auto& self, auto&& visit) {
    visit("host", self.host);
    visit("flops_per_s", self.flops_per_s);
    visit("cpu_share", self.cpu_share);
    visit("copy_bytes_per_s", self.copy_bytes_per_s);
    visit("memory_bytes", self.memory_bytes);
    visit.nullable("disk", self.disk);
    visit("facts", self.facts);
  }
};

/// What was measured between two nodes, which are indices into the list of figures.
struct LinkFigures {
  std::size_t a = 0, b = 0;
  double bytes_per_s = 0;   ///< in each direction, both at once
  double round_trip_s = 0;  ///< of a byte

  static void fields(auto& self, auto&& visit) {
    visit(self.a, self.b, self.bytes_per_s, self.round_trip_s);
  }
};

/// Combines the figures of one node's ranks into the node's. Pure.
NodeFigures combine(const std::vector<NodeFigures>& ranks);

/// This node's facts: kernel, processor, the program's libraries with their build ids, limits, GPU
/// driver, and which of `paths` can be read.
std::map<std::string, std::string> node_facts(const Machine& machine, const NodeLook& look,
                                              const std::vector<std::string>& paths);

/// One rank's part of the measurement, without facts and disk. Runs a thread on each core for about
/// a second; the ranks of all nodes should call it at the same time.
NodeFigures measure_cores(const std::vector<CpuSet>& cores);

/// Writes a file of 16 MB into the directory (or its nearest existing parent), reads it back and
/// removes it. The figures hold an error when that fails or takes longer than 5 s, as on a file
/// system that hangs.
DiskFigures measure_disk(const std::filesystem::path& directory);

/// A round-robin tournament: in tournament_rounds(count) rounds each pair meets once. Returns the
/// partner of `me` of `count` in `round`, or nothing when `me` sits the round out. Pure.
std::optional<std::size_t> partner_in(std::size_t round, std::size_t me, std::size_t count);
std::size_t tournament_rounds(std::size_t count);

/// The nodes and links that differ from the others.
struct NodeFindings {
  std::vector<std::string> findings;  ///< one line each, for humans: which node, what, the others
  std::vector<std::string> exclude;   ///< the nodes to leave out, sorted
};

/// Compares nodes with each other. A node is excluded when one of its figures is far below that of
/// the others, when most of its links are far slower than usual, when its disk cannot be used
/// though others' can, or when it differs in a fact on which most nodes agree. A finding that
/// cannot be blamed on one node (a single slow link, two nodes that differ) excludes no node. Pure.
NodeFindings judge_nodes(const std::vector<NodeFigures>& nodes,
                         const std::vector<LinkFigures>& links);

/// All figures and findings as one JSON object for the run's directory.
std::string to_json(const std::vector<NodeFigures>& nodes, const std::vector<LinkFigures>& links,
                    const NodeFindings& findings);

}  // namespace lockstep::cluster
