#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/cluster/identify.hpp"

namespace lockstep::cluster {

/// Which of the `visible` devices (at least one) this rank uses, as CUDA numbers them: where the
/// launcher shows each rank one device, that one; else the local rank's. `share`: ranks may use one
/// device together, in turn. Throws InputError naming both numbers and what to change when a
/// machine has more ranks than devices. Pure.
std::size_t choose_gpu(const RankInfo& rank, std::size_t visible, bool share);

/// Where one rank computes: the running kernel that it shares with its neighbours, and its GPU.
struct GpuUse {
  std::string machine, pci_bus_id;
};

/// Throws InputError when two ranks (an entry each, in order) use one GPU of one machine, naming
/// them and what to change. NCCL would refuse it too, much later. Pure.
void require_own_gpus(const std::vector<GpuUse>& ranks);

}  // namespace lockstep::cluster
