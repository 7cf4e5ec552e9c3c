#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/start/launch.hpp"
#include "lockstep/backend/backend.hpp"
#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/cluster/topology/bind.hpp"
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

/// A bound rank, and what reading the binding back found.
struct BoundRank {
  std::unique_ptr<backend::Backend> backend;
  cluster::BindingReport report;
};

/// Binds the process by the plan, makes the backend, whose threads inherit the binding, and reads
/// back where the threads run, where the memory is that the device copies from, and how fast it
/// copies. `cuda_device`: CUDA's number of the rank's GPU; empty for the CPU. `pace`: of the clock
/// backend, if it is to be that.
BoundRank bind_rank(const cluster::Plan& plan, std::optional<int> cuda_device,
                    const std::optional<backend::Pace>& pace = std::nullopt);

}  // namespace lockstep::app
