#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/cluster/topology/machine.hpp"

namespace lockstep::cluster {

/// Where one rank runs. It depends only on the machine and on the ranks that share it.
struct Plan {
  CpuSet share;        ///< the rank's own part of the allowed CPUs
  int numa_node = -1;  ///< os index of the node that holds the share, -1 when it spans several
  std::vector<CpuSet> compute;  ///< one set for each compute thread
  /// For the loader's threads: disjoint from compute when the share has spare cores.
  CpuSet loader;
  bool loader_shares_cores = false;
  std::size_t spare = 0;       ///< logical processors that no compute thread uses
  std::string gpu_pci_bus_id;  ///< empty without a GPU
  std::string network;         ///< the name of the nearest card; empty when no card is known
  /// What a human should know ("GPU-local cores are not allowed: kept ...").
  std::vector<std::string> remarks;
  bool foreign = false;  ///< made for a machine that is not this one
};

struct PlanRequest {
  int local_rank = 0, local_size = 1;
  std::size_t compute_threads = 0;  ///< 0 = one for each physical core of the share or the quota
  /// Cores whose time this rank may use, by a cgroup's quota (GroupLimits); infinity: no quota.
  double quota_cores = std::numeric_limits<double>::infinity();
  CpuSet already_bound;   ///< the mask that the launcher gave this process (read back): only its
                          ///< CPUs are used; empty when there is no mask
  CpuSet bound_together;  ///< the CPUs in the masks of all local ranks; empty: as already_bound
  bool launcher_divided = false;        ///< only this rank has that mask: kept, not divided
  std::string gpu_pci_bus_id;           ///< bind near this GPU; empty without one
  std::vector<std::string> local_gpus;  ///< every local rank's GPU, to see which ranks share a
                                        ///< domain; empty: the machine's GPUs in order
};

/// Plans one rank. Its domain is the cores near its GPU, or all allowed ones without a GPU. Ranks
/// with the same domain divide it evenly (sizes differ by at most one physical core) into
/// contiguous parts in NUMA order.
/// The network card is the one nearest to the GPU, or to the share without a GPU. Cards that are up
/// are preferred, then those that speak verbs; ranks take turns on equally near ones.
/// Throws InputError when the mask holds no allowed CPU.
Plan plan_binding(const Machine& machine, const PlanRequest& request);

/// One of the ranks on this machine, as its launcher started it.
struct LocalRank {
  CpuSet mask;                 ///< the CPUs that it may run on, read back
  std::string gpu_pci_bus_id;  ///< empty without one
};

/// The request of `ranks[mine]`: it divides its mask with the ranks that have the same one. A
/// launcher that gave each rank a different mask has already divided the machine.
PlanRequest request_among(const std::vector<LocalRank>& ranks, std::size_t mine,
                          std::size_t compute_threads);

/// Chooses one of the `visible` devices (at least one) for this rank, as CUDA numbers them: the
/// only one when the launcher shows each rank one device, else the device with the local rank's
/// number. `share`: ranks may use one device together, in turn. Throws InputError naming both
/// numbers and what to change when a machine has more ranks than devices. Pure.
std::size_t choose_gpu(const RankInfo& rank, std::size_t visible, bool share);

/// Where one rank computes: its machine (named by the running kernel) and its GPU.
struct GpuUse {
  std::string machine, pci_bus_id;
};

/// Throws InputError when two ranks (an entry each, in order) use one GPU of one machine, naming
/// them and what to change. NCCL does not allow it either, but fails much later. Pure.
void require_own_gpus(const std::vector<GpuUse>& ranks);

}  // namespace lockstep::cluster
