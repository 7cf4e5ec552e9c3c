#include "lockstep/cluster/topology/binding_report.hpp"
#include "lockstep/base/text/join.hpp"

#include <fmt/core.h>

namespace lockstep::cluster {

std::string describe(const BindingReport& report, const RankInfo& rank) {
  const Plan& plan = report.plan;
  CpuSet compute;
  for (const CpuSet& thread : plan.compute) compute = joined(compute, thread);
  std::string line = fmt::format(
      "rank {} on {}: CPUs {}, {}{}, {} on {}, loader on {}{}: {}", rank.rank, rank.host,
      to_string(report.process_cpus),
      plan.numa_node < 0 ? "several NUMA nodes" : fmt::format("NUMA node {}", plan.numa_node),
      plan.gpu_pci_bus_id.empty() ? "" : ", GPU " + plan.gpu_pci_bus_id,
      counted(plan.compute.size(), "compute thread"), to_string(compute), to_string(plan.loader),
      plan.loader_shares_cores ? " (shared)" : "", report.ok ? "PASS" : "FAIL");
  for (const std::string& failure : report.failures) line += "; " + failure;
  for (const std::string& remark : plan.remarks) line += "; " + remark;
  return line;
}

}  // namespace lockstep::cluster
