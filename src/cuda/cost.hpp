#pragma once

#include <string>
#include <vector>

#include "cuda/plan.hpp"

namespace lockstep::cuda {

/// What one step of the tape does at least: operations, and bytes when everything is read and
/// written once by each of its kernels.
struct StepCost {
  std::string name;
  double flops = 0, bytes = 0;
  Precision precision = Precision::fp32;  ///< of the operations
};

/// The tape's steps in order; names as the program gives them.
std::vector<StepCost> tape_costs(const nn::Network& network, const ProgramPlan& plan);

/// One update of the whole arena of `weights` floats.
StepCost update_cost(std::size_t weights, Storage storage);

}  // namespace lockstep::cuda
