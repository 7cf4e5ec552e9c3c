#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/cluster/topology/binding_plan.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/cluster/topology/pages.hpp"

namespace lockstep::cluster {

/// A plan, and what was read back after binding to it.
struct BindingReport {
  Plan plan;
  CpuSet process_cpus;   ///< read back
  int memory_node = -1;  ///< where a freshly touched page really is; -1 = not known
  std::map<std::string, std::size_t> threads;  ///< how many run on which CPUs ("0-3"), read back
  std::map<std::string, PagesOnNodes> pages;   ///< by what was verified ("pinned", "loader")
  std::optional<double> upload_bytes_per_s;    ///< from pinned memory to the GPU, measured
  bool ok = false;  ///< CPUs as planned, and memory too when there are several NUMA nodes
  std::vector<std::string> failures;  ///< why not ok, for humans
};

/// CPUs that the calling thread may run on now.
CpuSet current_cpus();

/// Binds the calling thread. Throws Error with the set and the system's reason.
void bind_thread(const CpuSet& cpus);

/// Takes future memory from the NUMA node while it has any: for the calling thread and the threads
/// that it starts from now on. Throws Error with the node and the system's reason.
void bind_memory(int numa_node);

/// Undoes bind_memory(): the kernel chooses the node. Throws Error with the system's reason.
void unbind_memory();

/// Binds every thread of the process to the plan's share, and memory to the share's NUMA node, then
/// reads both back. Call it before threads, contexts and large buffers exist: masks are inherited,
/// and pages stay where they were first touched.
BindingReport bind_process(const Plan& plan);

/// Reads back where the process's threads run: each of the plan's compute threads needs one on its
/// CPUs. Adds this to the report, which fails when one is missing.
void verify_threads(BindingReport& report);

/// Adds where the pages of `what` are to the report. With several NUMA nodes the report fails when
/// judge_pages() finds a reason.
void verify_pages(BindingReport& report, const std::string& what,
                  const std::vector<Memory>& memory);

/// One line for a human: "rank 1 on node7: CPUs 4-7, NUMA node 0, compute 4-6, loader 7: PASS",
/// then failures and remarks.
std::string describe(const BindingReport& report, const RankInfo& rank);

}  // namespace lockstep::cluster
