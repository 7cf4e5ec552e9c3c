#pragma once

#include <sys/types.h>

#include <vector>

#include "lockstep/cluster/topology.hpp"

namespace lockstep::cluster {

/// CPUs that a thread may run on; empty when it has ended.
CpuSet get_affinity(pid_t thread);

std::vector<pid_t> threads_of_process();

/// The NUMA nodes whose memory this process may use, GPU memory included.
CpuSet memory_nodes();

}  // namespace lockstep::cluster
