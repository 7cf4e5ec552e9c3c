#include "cluster/topology/affinity.hpp"

#include <fmt/core.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"

// The kernel's own calls instead of hwloc's: when its environment describes another machine,
// hwloc's calls succeed without doing anything.

namespace lockstep::cluster {
namespace {

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

}  // namespace

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

CpuSet memory_nodes() {
  std::ifstream status("/proc/self/status");
  const std::string key = "Mems_allowed_list:\t";
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return parse_cpus(line.substr(key.size()));
  return {};  // a kernel without NUMA
}

}  // namespace lockstep::cluster
