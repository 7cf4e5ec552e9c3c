#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cluster {

/// A set of logical processors by operating-system index, ascending. "0-3,8" as text.
using CpuSet = std::vector<int>;
std::string to_string(const CpuSet& cpus);
/// The set that "0-3,8" stands for; "" is the empty set. Throws InputError with the text for junk.
CpuSet parse_cpus(std::string_view text);

struct NumaNode {
  int os_index = 0;
  CpuSet cpus;  ///< only nodes that have CPUs are listed: GPU memory may appear as a node
  std::size_t bytes = 0;
};

/// Where a PCI device hangs: what holds it (machine, package, bridges, ...), outermost first. Two
/// devices are the nearer to each other, the more of it they have in common.
using PciPath = std::vector<std::uint64_t>;

struct Gpu {
  std::string name, pci_bus_id;  ///< "0000:17:00.0"
  CpuSet near_cpus;              ///< allowed or not
  PciPath path;
};

/// A network card, and what the system calls it.
struct Network {
  std::string name;  ///< "mlx5_0 (ib0)": the HCA and its interfaces; "ens5"; "PCI 15b3:1017"
  std::string pci_bus_id;
  bool hca = false;  ///< speaks InfiniBand's verbs (InfiniBand, RoCE, EFA, Omni-Path)
  bool up = true;    ///< false where the system says that no cable or no peer is there
  CpuSet near_cpus;
  PciPath path;
};

/// What a machine is, by hwloc.
struct Machine {
  std::string model;  ///< of the processor
  std::vector<NumaNode> numa;
  std::vector<CpuSet> cores;      ///< logical processors of each physical core, allowed or not
  std::vector<Gpu> gpus;          ///< by PCI bus id
  std::vector<Network> networks;  ///< by PCI bus id
  CpuSet allowed;                 ///< what the scheduler or cgroup lets this process use
  bool foreign = false;           ///< read from a file: a plan for it can be shown, never bound
};

/// The machine that this process runs on, or the one that `xml_path` describes (lstopo --of xml).
/// Throws InputError when the file is missing, no topology or one without a processor that may be
/// used, and when the environment (HWLOC_*) makes hwloc describe another machine than this one.
/// Starts no GPU driver.
Machine look_at_machine(const std::optional<std::string>& xml_path = std::nullopt);

/// The machine as a cgroup would show it that holds none of these CPUs. Throws InputError when the
/// machine does not have them, and when nothing is left. Pure.
Machine without_cpus(Machine machine, const CpuSet& hidden);

/// Where one rank runs. A pure function of the machine and of who shares it.
struct Plan {
  CpuSet share;        ///< the rank's own part of the allowed CPUs
  int numa_node = -1;  ///< os index of the node that holds the share, -1 when it spans several
  std::vector<CpuSet> compute;  ///< one set for each compute thread
  /// For the loader's threads: disjoint from compute when the share has spare cores.
  CpuSet loader;
  bool loader_shares_cores = false;
  std::string gpu_pci_bus_id;  ///< empty without a GPU
  std::string network;         ///< the name of the nearest card; empty where none is known
  /// What a human should know ("GPU-local cores are not allowed: kept ...").
  std::vector<std::string> remarks;
  bool foreign = false;  ///< made for a machine that is not this one
};

struct PlanRequest {
  int local_rank = 0, local_size = 1;
  std::size_t compute_threads = 0;  ///< 0 = one for each physical core of the share
  CpuSet already_bound;   ///< the mask that the launcher gave this process (read back): nothing
                          ///< outside it is used; empty when there is none
  CpuSet bound_together;  ///< what the masks of all local ranks hold; empty: as already_bound
  bool launcher_divided = false;        ///< this rank alone has that mask: it is kept, not divided
  std::string gpu_pci_bus_id;           ///< bind near this GPU; empty without one
  std::vector<std::string> local_gpus;  ///< every local rank's GPU, to see who shares a domain;
                                        ///< empty: the machine's GPUs in order
};

/// Cores near the GPU, else all allowed ones, divided evenly (sizes differ by at most one physical
/// core) and contiguously in NUMA order among the local ranks that have the same ones. The network
/// card is the nearest to the GPU, else to the share, of those that are up and, where there are
/// any, speak verbs; ranks with several equally near ones take turns.
/// Throws InputError when the mask holds no allowed CPU.
Plan plan_binding(const Machine& machine, const PlanRequest& request);

/// One of the ranks on this machine, as it came from its launcher.
struct LocalRank {
  CpuSet mask;                 ///< the CPUs that it may run on, read back
  std::string gpu_pci_bus_id;  ///< empty without one
};

/// The request of `ranks[mine]`: it shares what it has with the ranks that came with the same mask.
/// A launcher that gave each rank its own mask has divided the machine already.
PlanRequest request_among(const std::vector<LocalRank>& ranks, std::size_t mine,
                          std::size_t compute_threads);

/// CPUs that the calling thread may run on now.
CpuSet current_cpus();
/// Binds the calling thread. Throws Error with the set and the system's reason.
void bind_thread(const CpuSet& cpus);
/// Lets the calling thread's future memory, and that of the threads that it starts from now on,
/// come from the NUMA node as long as there is any. Throws Error with the node and the system's
/// reason.
void bind_memory(int numa_node);

/// How many pages lie on each NUMA node; under -1 those of which the kernel does not tell.
using PagesOnNodes = std::map<int, std::size_t>;

/// What was asked for and what reading back says.
struct BindingReport {
  Plan plan;
  CpuSet process_cpus;   ///< read back
  int memory_node = -1;  ///< where a freshly touched page really is; -1 = not known
  std::map<std::string, std::size_t> threads;  ///< how many run on which CPUs ("0-3"), read back
  std::map<std::string, PagesOnNodes> pages;   ///< of what was looked at ("pinned", "loader")
  std::optional<double> upload_bytes_per_s;    ///< from pinned memory to the GPU, measured
  bool ok = false;  ///< CPUs as asked; memory too where there are several NUMA nodes
  std::vector<std::string> failures;  ///< why not ok, for humans
};
/// Binds the whole process (every thread that it has) to its share and its memory to the share's
/// NUMA node, then reads both back. Call it before threads, contexts and large buffers: masks are
/// inherited and pages stay where they were first touched.
BindingReport bind_process(const Plan& plan);

/// Lets the calling thread's future memory come from wherever the kernel likes, as if it had never
/// been bound. Throws Error with the system's reason.
void unbind_memory();

/// Reads back where the process's threads run: for each of the plan's compute threads there must be
/// one on its CPUs. Adds to the report, and fails it when one is missing.
void verify_threads(BindingReport& report);

using Memory = std::span<const std::byte>;
/// Where the pages are that have been touched, by the kernel's own word; of large memory an evenly
/// spread part. Pages that nobody has touched are nowhere, and not counted.
PagesOnNodes locate_pages(const std::vector<Memory>& memory);
/// Why this is not as asked for: more than a tenth of the pages of `what` is not on the node, or
/// where they are is not known. Nothing when all is well. Pure.
std::optional<std::string> judge_pages(const std::string& what, const PagesOnNodes& pages,
                                       int numa_node);
/// Adds where the pages of `what` are to the report, and fails it where judge_pages() does, if
/// there are several NUMA nodes to choose from.
void verify_pages(BindingReport& report, const std::string& what,
                  const std::vector<Memory>& memory);

}  // namespace lockstep::cluster
