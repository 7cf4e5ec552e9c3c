#pragma once

#include <optional>
#include <vector>

#include "lockstep/backend/rates.hpp"
#include "ports/cuda/plan/plan.hpp"

namespace lockstep::cuda {

/// The tape's steps in order, with the program's names, and in training the update: the least that
/// each step does, and how long that takes at these rates.
std::vector<backend::StepFloor> floors(const nn::Network& network, const ProgramPlan& plan,
                                       const std::optional<backend::GpuRates>& rates);

}  // namespace lockstep::cuda
