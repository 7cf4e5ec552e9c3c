#include "app/start/traps_here.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::app {
namespace {

/// A trap, and the nodes that have it.
struct SharedTrap {
  std::string text;
  std::vector<std::string> hosts;
};

std::vector<SharedTrap> shared(const Launch& launch,
                               const std::vector<std::vector<std::string>>& of_rank) {
  std::vector<SharedTrap> all;
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank)
    for (const std::string& text : of_rank[rank]) {
      const std::string& host = launch.nodes.name_of(launch.nodes.node_of(static_cast<int>(rank)));
      const auto known = std::ranges::find(all, text, &SharedTrap::text);
      if (known == all.end())
        all.push_back({text, {host}});
      else
        known->hosts.push_back(host);
    }
  return all;
}

}  // namespace

cluster::NodeLook look_at_launch(const Launch& launch) {
  if (!launch.nodes.leads_node(launch.rank.rank)) return {};
  cluster::NodeLook look = cluster::look_at_node(cluster::process_variables());
  look.world = launch.rank.world;
  look.nodes = static_cast<int>(launch.nodes.count());
  look.ranks_here = static_cast<int>(launch.nodes.local_size(launch.rank.rank));
  if (launch.world) look.mpi = comm::mpi_library().name;
  return look;
}

std::vector<std::string> traps_of_nodes(Launch& launch, const cluster::NodeLook& mine,
                                        cluster::TrapScope scope) {
  std::vector<std::string> here;
  if (launch.nodes.leads_node(launch.rank.rank))
    for (const cluster::TrapFinding& one : cluster::find_traps(mine, scope))
      here.push_back(to_string(one));
  std::vector<std::string> said;
  for (const SharedTrap& trap :
       shared(launch, comm::gather_records_at_root(*launch.control, here, "traps of the nodes"))) {
    const bool everywhere = trap.hosts.size() == launch.nodes.count();
    said.push_back(everywhere
                       ? trap.text
                       : fmt::format("{}: {}", cluster::compress_hosts(trap.hosts), trap.text));
  }
  return said;
}

void warn_of_traps(Launch& launch, cluster::TrapScope scope) {
  for (const std::string& trap : traps_of_nodes(launch, look_at_launch(launch), scope))
    log::warn(trap);
}

NcclLog::NcclLog(const std::string& parts) {
  if (parts.empty() || std::getenv("NCCL_DEBUG")) return;
  path_ = std::filesystem::temp_directory_path() / fmt::format("lockstep-nccl-{}", getpid());
  setenv("NCCL_DEBUG", "INFO", 0);
  setenv("NCCL_DEBUG_SUBSYS", parts.c_str(), 0);
  setenv("NCCL_DEBUG_FILE", path_.c_str(), 0);
}

NcclLog::~NcclLog() {
  std::error_code none;
  std::filesystem::remove(path_, none);
}

std::string NcclLog::text() const {
  return !path_.empty() && std::filesystem::exists(path_) ? read_text(path_) : "";
}

void say_nccl_network(const Launch& launch, const NcclLog& nccl) {
  const std::string network = cluster::nccl_network_in(nccl.text());
  if (network.empty() || launch.nodes.count() < 2) return;
  log::info(fmt::format("NCCL's network between the nodes: {}", network));
  if (const auto trap = cluster::judge_nccl_network(look_at_launch(launch), network))
    log::warn(to_string(*trap));
}

}  // namespace lockstep::app
