#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::sys {

/// A set of logical processors by operating-system index, ascending. "0-3,8" as text.
using CpuSet = std::vector<int>;
std::string to_string(const CpuSet& cpus);

struct NumaNode {
  int os_index = 0;
  CpuSet cpus;  ///< only nodes that have CPUs are listed: GPU memory may appear as a node
  std::size_t bytes = 0;
};

struct Gpu {
  std::string name, pci_bus_id;  ///< "0000:17:00.0"
  CpuSet near_cpus;
};

/// What this machine is, by hwloc. `xml` describes another machine (lstopo --of xml); then nothing
/// can be bound.
struct Machine {
  std::string model;  ///< of the processor
  std::vector<NumaNode> numa;
  std::vector<CpuSet> cores;  ///< logical processors of each physical core
  std::vector<Gpu> gpus;
  CpuSet allowed;  ///< what the scheduler or cgroup lets this process use
};
Machine look_at_machine(const std::optional<std::string>& xml_path = std::nullopt);

/// Where one rank runs. A pure function of the machine and of who shares it.
struct Plan {
  CpuSet share;        ///< the rank's own part of the allowed CPUs
  int numa_node = -1;  ///< os index of the node that holds the share, -1 when it spans several
  std::vector<CpuSet> compute;  ///< one set for each compute thread
  CpuSet
      loader;  ///< for the loader's threads: disjoint from compute when the share has spare cores
  bool loader_shares_cores = false;
  std::string gpu_pci_bus_id;  ///< empty without a GPU
  std::vector<std::string>
      remarks;  ///< what a human should know ("GPU-local cores are not allowed: kept ...")
};

struct PlanRequest {
  int local_rank = 0, local_size = 1;
  std::size_t compute_threads = 0;  ///< 0 = one for each physical core of the share
  CpuSet already_bound;  ///< the mask that the launcher gave this process (read back); used when it
                         ///< differs between local ranks, i.e. when the launcher has already
                         ///< divided the node
  bool launcher_divided = false;
  std::string gpu_pci_bus_id;  ///< bind near this GPU; empty without one
};
Plan plan_binding(const Machine& machine, const PlanRequest& request);

/// CPUs that the calling thread may run on now.
CpuSet current_cpus();
/// Binds the calling thread. Throws Error with the set and the system's reason.
void bind_thread(const CpuSet& cpus);
/// Binds the process's future memory to the NUMA node (no effect with one node).
void bind_memory(int numa_node);

/// What was asked for and what reading back says.
struct BindingReport {
  Plan plan;
  CpuSet process_cpus;   ///< read back
  int memory_node = -1;  ///< where a freshly touched page really is; -1 = not known
  bool ok = false;
  std::vector<std::string> failures;
};
/// Binds the whole process to its share and its memory to the share's NUMA node, then reads both
/// back.
BindingReport bind_process(const Plan& plan);

}  // namespace lockstep::sys
