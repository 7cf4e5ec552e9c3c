#include "lockstep/cluster/topology/bind.hpp"

#include <fmt/core.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "cluster/topology/affinity.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/cluster/topology/pages.hpp"

namespace lockstep::cluster {
namespace {

/// The node of a page that is touched now; -1 when the kernel does not report it.
int node_of_new_page() {
  const std::size_t size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(page != MAP_FAILED, "no memory for one page");
  *static_cast<volatile char*>(page) = 1;
  const PagesOnNodes nodes = locate_pages({{static_cast<std::byte*>(page), size}});
  munmap(page, size);
  return nodes.empty() ? -1 : nodes.begin()->first;
}

/// Binds all threads: MPI may already have started some.
void bind_cpus(const CpuSet& share, BindingReport& report) {
  for (pid_t thread : threads_of_process()) {
    const int reason = set_affinity(thread, share);
    const bool ended_meanwhile = reason == ESRCH;
    if (reason != 0 && !ended_meanwhile)
      report.failures.push_back(fmt::format("thread {} cannot be bound to CPUs {}: {}", thread,
                                            to_string(share), std::strerror(reason)));
  }
  report.process_cpus = get_affinity(calling_thread);
  for (pid_t thread : threads_of_process())
    if (const CpuSet cpus = get_affinity(thread); !cpus.empty() && cpus != share)
      report.failures.push_back(fmt::format("thread {} runs on CPUs {}, not on {}", thread,
                                            to_string(cpus), to_string(share)));
}

void bind_memory_too(int numa_node, BindingReport& report) {
  const bool choice = memory_nodes().size() > 1;
  if (choice && numa_node >= 0) {
    try {
      bind_memory(numa_node);
    } catch (const Error& error) {
      report.failures.push_back(error.what());
    }
  }
  report.memory_node = node_of_new_page();
  if (choice && numa_node >= 0 && report.memory_node != numa_node)
    report.failures.push_back(
        report.memory_node < 0
            ? fmt::format("where memory is cannot be read back (asked for NUMA node {})", numa_node)
            : fmt::format("a new page is on NUMA node {}, not on {}", report.memory_node,
                          numa_node));
}

}  // namespace

CpuSet current_cpus() { return get_affinity(calling_thread); }

void bind_thread(const CpuSet& cpus) {
  const int reason = set_affinity(calling_thread, cpus);
  check(reason == 0, fmt::format("a thread cannot be bound to CPUs {}: {}", to_string(cpus),
                                 std::strerror(reason)));
  const CpuSet found = current_cpus();
  check(found == cpus, fmt::format("a thread was bound to CPUs {}, but runs on {}", to_string(cpus),
                                   to_string(found)));
}

void bind_memory(int numa_node) {
  check(numa_node >= 0, "bind_memory: no such NUMA node");
  constexpr std::size_t bits = 8 * sizeof(unsigned long);
  const std::size_t node = static_cast<std::size_t>(numa_node);
  std::vector<unsigned long> mask(node / bits + 1, 0);
  mask[node / bits] |= 1ul << (node % bits);
  // Preferred, not bound: when the node is full, memory on another node is slower, but a strict
  // binding would end the process. The kernel reads one bit less than its argument says.
  const long failed =
      syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), mask.size() * bits + 1);
  check(failed == 0,
        fmt::format("memory cannot be bound to NUMA node {}: {}", numa_node, std::strerror(errno)));
}

void unbind_memory() {
  const long failed = syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0);
  check(failed == 0 || errno == ENOSYS,  // a kernel without NUMA binds no memory
        fmt::format("memory cannot be unbound: {}", std::strerror(errno)));
}

BindingReport bind_process(const Plan& plan) {
  check(!plan.foreign, "a plan for another machine cannot be bound on this one");
  BindingReport report;
  report.plan = plan;
  bind_cpus(plan.share, report);
  bind_memory_too(plan.numa_node, report);
  report.ok = report.failures.empty();
  return report;
}

}  // namespace lockstep::cluster
