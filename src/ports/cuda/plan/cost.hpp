#pragma once

#include <optional>
#include <vector>

#include "lockstep/backend/rates.hpp"
#include "ports/cuda/plan/plan.hpp"

namespace lockstep::cuda {

/// The tape's steps in order, names as the program gives them, and in training the update: what
/// each does at least, and how long that takes at these rates.
std::vector<backend::StepFloor> floors(const nn::Network& network, const ProgramPlan& plan,
                                       const std::optional<backend::GpuRates>& rates);

}  // namespace lockstep::cuda
