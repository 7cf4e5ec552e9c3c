#pragma once

#include <cstddef>
#include <string>

#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/cluster/topology/machine.hpp"

namespace lockstep::cluster {

/// The machine's GPU with this bus id, in upper or lower case; null when there is none.
const Gpu* find_gpu(const Machine& machine, const std::string& pci_bus_id);

/// The network card of a rank with this share and GPU (null: no GPU); see plan_binding(). `turn`
/// chooses among equally near cards for a rank without a GPU. Null when no card is known.
const NetworkCard* nearest_network(const Machine& machine, const CpuSet& share, const Gpu* gpu,
                                   std::size_t turn);

}  // namespace lockstep::cluster
