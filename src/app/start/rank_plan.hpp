#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "app/start/launch.hpp"
#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/cluster/topology/binding_plan.hpp"
#include "lockstep/cluster/topology/gpu_choice.hpp"
#include "lockstep/cluster/topology/machine.hpp"

namespace lockstep::app {

/// A GPU: CUDA's number and its place in the machine.
struct ChosenGpu {
  std::optional<int> ordinal;  ///< empty without a GPU
  std::string pci_bus_id;      ///< empty without a GPU
};

/// This rank's GPU, if the backend is "cuda"; see cluster::choose_gpu(). Throws InputError when
/// none is visible.
ChosenGpu choose_gpu(const cluster::RankInfo& rank, const std::string& backend, bool share);

/// Where this rank runs, and the GPUs of all ranks.
struct RankPlan {
  cluster::Plan plan;
  std::vector<cluster::GpuUse> gpus;  ///< of each rank; bus ids are empty without GPUs
};

/// The ranks of one machine exchange what their launcher gave them and divide it. Collective over
/// launch.control if there is one; call it before anything is bound. compute_threads: 0 = one for
/// each physical core of the share. gpu_pci_bus_id: of this rank's GPU, empty without one.
RankPlan plan_rank(Launch& launch, const cluster::Machine& machine, std::size_t compute_threads,
                   const std::string& gpu_pci_bus_id);

}  // namespace lockstep::app
