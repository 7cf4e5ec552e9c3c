#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/start/launch.hpp"
#include "lockstep/backend/backend.hpp"
#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/cluster/topology/bind.hpp"
#include "lockstep/cluster/topology/binding_plan.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/cluster/topology/machine.hpp"
#include "lockstep/cluster/topology/pages.hpp"
#include "lockstep/comm/worlds/nccl.hpp"

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

struct ComputeRequest {
  std::string backend = "cpu";  ///< "cpu", "cuda" or "clock": see decide_backend()
  std::size_t threads = 0;      ///< compute threads; 0 = one for each core of the rank's share
  bool require_binding = false;
  bool share_gpu = false;                            ///< ranks of a machine may use one GPU
  std::optional<backend::Pace> pace = std::nullopt;  ///< of the backend "clock"
};

/// Decides --backend: "auto" is cuda when every rank sees a GPU, and cpu when none does; rank 0
/// then logs the reason. Collective. Throws InputError when "cuda" is asked for but not available,
/// and when "auto" finds ranks with and without a GPU, naming one of them and its reason.
std::string decide_backend(Launch& launch, const std::string& asked);

/// What a rank computes with, bound to its place.
struct Compute {
  std::unique_ptr<backend::Backend> backend;
  std::function<void()> bind_worker;  ///< binds the calling loader thread
  std::size_t spare_cores = 0;        ///< logical processors that no compute thread uses
  /// The physical cores of which this rank has processors, each by its first one.
  cluster::CpuSet cores;
  std::string gpu_pci_bus_id;  ///< empty without a GPU
  /// On rank 0 reports the binding of all ranks as JSON, including where the pages of this rank's
  /// loader are, if it has filled any. Collective. Throws InputError when a binding was required
  /// and the pages are elsewhere.
  std::function<std::string(const std::vector<cluster::Memory>& loader)> binding_report;
};

/// Chooses this rank's GPU (if any), places it among those of its machine, binds the process, then
/// makes the backend, whose threads inherit the binding. Collective, except where the processes are
/// independent; call it once, after Launch::start if it is called, and before anything that starts
/// threads. Throws InputError when a binding was required but reading back does not confirm it, and
/// when there are fewer GPUs than ranks.
Compute prepare_compute(Launch& launch, const ComputeRequest& request);

/// Connects the ranks for the backend's gradients: NCCL between GPUs, else connect_cpus().
/// Collective.
std::unique_ptr<comm::Communicator> connect(Launch& launch, Compute& compute,
                                            const comm::NcclSpec& spec);
/// Connects CPUs by MPI, or by TCP where there is no MPI. Collective.
std::unique_ptr<comm::Communicator> connect_cpus(Launch& launch, double deadline_s);
/// Puts two levels above `flat`, a communicator of CPUs, as comm.all-reduce of a training does:
/// null for "flat", and for "auto" where they have no use or a node's ranks cannot share memory.
/// Collective. Throws InputError where "two-level" is not possible.
std::unique_ptr<comm::Communicator> connect_two_level(Launch& launch, comm::Communicator& flat,
                                                      const std::string& all_reduce,
                                                      double deadline_s);

}  // namespace lockstep::app
