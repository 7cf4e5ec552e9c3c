#pragma once

#include <sys/types.h>

#include <vector>

#include "lockstep/cluster/topology/cpuset.hpp"

namespace lockstep::cluster {

constexpr pid_t calling_thread = 0;

/// CPUs that a thread may run on; empty when it has ended.
CpuSet get_affinity(pid_t thread);

/// Returns 0, or the system's errno.
int set_affinity(pid_t thread, const CpuSet& cpus);

std::vector<pid_t> threads_of_process();

/// The NUMA nodes whose memory this process may use, GPU memory included.
CpuSet memory_nodes();

}  // namespace lockstep::cluster
