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

/// One line for a human: "rank 1 on node7: CPUs 4-7, NUMA node 0, compute 4-6, loader 7: PASS",
/// then failures and remarks.
std::string describe(const BindingReport& report, const RankInfo& rank);

}  // namespace lockstep::cluster
