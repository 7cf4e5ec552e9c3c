#pragma once

#include <cstddef>
#include <string>

#include "commands.hpp"
#include "lockstep/sys/topology.hpp"

namespace lockstep::app {

/// Where this rank runs: the ranks of one machine tell each other what their launcher gave them and
/// divide it. Collective over launch.control when there is one; call it before anything is bound.
/// compute_threads: 0 = one for each physical core of the share. gpu_pci_bus_id: of this rank's
/// GPU, empty without one.
sys::Plan plan_rank(Launch& launch, const sys::Machine& machine, std::size_t compute_threads,
                    const std::string& gpu_pci_bus_id = "");

}  // namespace lockstep::app
