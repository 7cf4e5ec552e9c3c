#include "lockstep/cluster/topology/bind.hpp"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/room.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

constexpr pid_t calling_thread = 0;

// The kernel's own calls instead of hwloc's: when its environment describes another machine,
// hwloc's calls succeed without doing anything.
class KernelMask {
 public:
  explicit KernelMask(int cpus) : cpus_(cpus), set_(CPU_ALLOC(cpus)) {
    check(set_ != nullptr, "no memory for a CPU mask");
    CPU_ZERO_S(bytes(), set_);
  }
  ~KernelMask() { CPU_FREE(set_); }
  KernelMask(const KernelMask&) = delete;
  KernelMask& operator=(const KernelMask&) = delete;

  std::size_t bytes() const { return CPU_ALLOC_SIZE(cpus_); }
  cpu_set_t* get() const { return set_; }

 private:
  int cpus_;
  cpu_set_t* set_;
};

/// CPUs that a thread may run on; empty when it has ended.
CpuSet get_affinity(pid_t thread) {
  // The kernel rejects a mask smaller than its own, whose size it does not report.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    const KernelMask mask(cpus);
    if (sched_getaffinity(thread, mask.bytes(), mask.get()) == 0) {
      CpuSet set;
      for (int cpu = 0; cpu < cpus; ++cpu)
        if (CPU_ISSET_S(static_cast<std::size_t>(cpu), mask.bytes(), mask.get()))
          set.push_back(cpu);
      return set;
    }
    if (errno == ESRCH) return {};
    check(errno == EINVAL, fmt::format("sched_getaffinity: {}", std::strerror(errno)));
  }
  throw Error("sched_getaffinity: the kernel's CPU mask is larger than 2^20");
}

/// Returns 0, or the system's errno.
int set_affinity(pid_t thread, const CpuSet& cpus) {
  if (cpus.empty()) return EINVAL;
  const KernelMask mask(cpus.back() + 1);
  for (int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), mask.bytes(), mask.get());
  return sched_setaffinity(thread, mask.bytes(), mask.get()) == 0 ? 0 : errno;
}

std::vector<pid_t> threads_of_process() {
  std::vector<pid_t> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    threads.push_back(whole_number<pid_t>(entry.path().filename().string()).value_or(0));
  }
  return threads;
}

/// The NUMA nodes whose memory this process may use, GPU memory included.
CpuSet memory_nodes() {
  return parse_cpus(field_of("/proc/self/status", "Mems_allowed_list"));  // none without NUMA
}

}  // namespace

namespace {

/// The node of a page that is touched now; -1 when the kernel does not report it.
int node_of_new_page() {
  const std::size_t size = page_bytes();
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
