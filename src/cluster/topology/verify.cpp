#include "lockstep/cluster/topology/verify.hpp"

#include <fmt/core.h>
#include <sys/types.h>

#include <map>

#include "cluster/topology/affinity.hpp"
#include "lockstep/base/text/join.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"

namespace lockstep::cluster {

void verify_pages(BindingReport& report, const std::string& what,
                  const std::vector<Memory>& memory) {
  report.pages[what] = locate_pages(memory);
  if (memory_nodes().size() < 2 || report.plan.numa_node < 0) return;
  if (const auto failure = judge_pages(what, report.pages[what], report.plan.numa_node)) {
    report.failures.push_back(*failure);
    report.ok = false;
  }
}

void verify_threads(BindingReport& report) {
  report.threads.clear();
  for (const pid_t thread : threads_of_process())
    if (const CpuSet cpus = get_affinity(thread); !cpus.empty()) ++report.threads[to_string(cpus)];
  std::map<std::string, std::size_t> wanted;
  for (const CpuSet& cpus : report.plan.compute) ++wanted[to_string(cpus)];
  for (const auto& [cpus, count] : wanted) {
    const auto there = report.threads.find(cpus);
    const std::size_t found = there == report.threads.end() ? 0 : there->second;
    if (found >= count) continue;
    report.failures.push_back(fmt::format("{} should run on CPUs {}, and {} do",
                                          counted(count, "compute thread"), cpus, found));
    report.ok = false;
  }
}

}  // namespace lockstep::cluster
