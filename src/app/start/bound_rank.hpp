#pragma once

#include <memory>
#include <optional>

#include "lockstep/backend/backend.hpp"
#include "lockstep/cluster/topology/bind.hpp"
#include "lockstep/cluster/topology/binding_plan.hpp"

namespace lockstep::app {

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
