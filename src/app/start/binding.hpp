#pragma once

#include <memory>
#include <optional>

#include "lockstep/backend/backend.hpp"
#include "lockstep/cluster/topology.hpp"

namespace lockstep::app {

/// A rank in its place, and what reading back says about it.
struct BoundRank {
  std::unique_ptr<backend::Backend> backend;
  cluster::BindingReport report;
};

/// Binds the process by the plan, makes the backend, whose threads inherit the binding, and reads
/// back: where the threads run, where memory lies that the device copies from, and how fast it
/// does. `cuda_device`: CUDA's number of the rank's GPU, nothing for the CPU.
BoundRank bind_rank(const cluster::Plan& plan, std::optional<int> cuda_device);

}  // namespace lockstep::app
