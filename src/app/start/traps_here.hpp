#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/start/launch.hpp"
#include "lockstep/cluster/traps/traps.hpp"

namespace lockstep::app {

/// What this node shows, and what the started launch knows. Of a rank that leads its node; others
/// need not look.
cluster::NodeLook look_at_launch(const Launch& launch);

/// What rank 0 should say of the nodes' traps, each with its line and, where not all have it, its
/// nodes. Collective, after start(); empty on other ranks.
std::vector<std::string> traps_of_nodes(Launch& launch, const cluster::NodeLook& mine,
                                        cluster::TrapScope scope);
/// Rank 0 warns of them. Collective.
void warn_of_traps(Launch& launch, cluster::TrapScope scope);

/// While it lives, NCCL logs into a file as it starts: where the user has not asked for a log.
class NcclLog {
 public:
  /// `parts`: NCCL_DEBUG_SUBSYS; empty: no log is wanted. Make it before NCCL starts.
  explicit NcclLog(const std::string& parts);
  ~NcclLog();
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;
  std::string text() const;

 private:
  std::filesystem::path path_;
};

/// Says which network NCCL took between the nodes, and warns of sockets where there is a better
/// one.
void say_nccl_network(const Launch& launch, const NcclLog& nccl);

}  // namespace lockstep::app
