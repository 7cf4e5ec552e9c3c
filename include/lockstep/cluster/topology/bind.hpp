#pragma once

#include "lockstep/cluster/topology/binding_plan.hpp"
#include "lockstep/cluster/topology/binding_report.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"

namespace lockstep::cluster {

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

}  // namespace lockstep::cluster
