#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/cluster/identity/identify.hpp"

namespace lockstep::cluster {

/// Chooses one of the `visible` devices (at least one) for this rank, as CUDA numbers them: the
/// only one when the launcher shows each rank one device, else the device with the local rank's
/// number. `share`: ranks may use one device together, in turn. Throws InputError naming both
/// numbers and what to change when a machine has more ranks than devices. Pure.
std::size_t choose_gpu(const RankInfo& rank, std::size_t visible, bool share);

/// Where one rank computes: its machine (named by the running kernel) and its GPU.
struct GpuUse {
  std::string machine, pci_bus_id;
};

/// Throws InputError when two ranks (an entry each, in order) use one GPU of one machine, naming
/// them and what to change. NCCL does not allow it either, but fails much later. Pure.
void require_own_gpus(const std::vector<GpuUse>& ranks);

}  // namespace lockstep::cluster
