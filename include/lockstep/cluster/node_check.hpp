#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/topology.hpp"

namespace lockstep::cluster {

/// What a node's disk, or the file system behind a directory, did.
struct DiskFigures {
  double write_bytes_per_s = 0;  ///< synchronised
  double free_bytes = 0;
  std::string error;  ///< why it cannot be used; empty when it can

  static void fields(auto& self, auto&& visit) {
    visit(self.write_bytes_per_s, self.free_bytes, self.error);
  }
};

/// What was measured on one node, by all its ranks together.
struct NodeFigures {
  std::string host;             ///< as the scheduler calls it
  double flops_per_s = 0;       ///< of its slowest core, by the CPU time that it took (plain SSE)
  double cpu_share = 1;         ///< of its cores' time that the measuring threads got, 0 to 1
  double copy_bytes_per_s = 0;  ///< memory to memory, all its cores together
  double memory_bytes = 0;      ///< that it has
  std::optional<DiskFigures> disk;
  /// What should be the same on all nodes: versions, limits, what is mounted.
  std::map<std::string, std::string> facts;

  static void fields(auto& self, auto&& visit) {
    visit(self.host, self.flops_per_s, self.cpu_share, self.copy_bytes_per_s, self.memory_bytes,
          self.disk, self.facts);
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

/// What stands out.
struct NodeFindings {
  std::vector<std::string> findings;  ///< one line each, for humans: which node, what, the others
  std::vector<std::string> exclude;   ///< the nodes to do without, sorted
};

/// Compares nodes with each other. A node is to be excluded when one of its figures is far below
/// that of the others, when most of its links are far slower than is usual here, when its disk
/// cannot be used though others' can, or when it differs in a fact in which most agree. What cannot
/// be laid at one node's door (a single slow link, two nodes that differ) is found, but excludes
/// nobody. Pure.
NodeFindings judge_nodes(const std::vector<NodeFigures>& nodes,
                         const std::vector<LinkFigures>& links);

/// Whom `me` of `count` meets in `round` of a tournament in which each pair meets once, in
/// tournament_rounds(count) rounds; nothing for who sits it out. Pure.
std::optional<std::size_t> partner_in(std::size_t round, std::size_t me, std::size_t count);
std::size_t tournament_rounds(std::size_t count);

/// One rank's part of the measurement. Starts a thread on each of its cores for about a second; the
/// ranks of all nodes should do so at the same time. No facts and no disk.
NodeFigures measure_cores(const std::vector<CpuSet>& cores);

/// Writes a file of 16 MB into the directory (its nearest existing parent), reads it back and
/// removes it. Says so in the figures when that fails, or takes longer than 5 s, as on a file
/// system that hangs.
DiskFigures measure_disk(const std::filesystem::path& directory);

/// This node's facts: kernel, processor, the program's libraries with their build ids, limits, GPU
/// driver, which of `paths` can be read.
std::map<std::string, std::string> node_facts(const Machine& machine,
                                              const std::vector<std::string>& paths);

/// The figures of several ranks of one node as those of the node. Pure.
NodeFigures combine(const std::vector<NodeFigures>& ranks);

/// Everything, as one JSON object for the run's directory.
std::string to_json(const std::vector<NodeFigures>& nodes, const std::vector<LinkFigures>& links,
                    const NodeFindings& findings);

}  // namespace lockstep::cluster
