#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/backend/program.hpp"
#include "ports/cuda/kernels/kernels.hpp"
#include "ports/cuda/lowering.hpp"
#include "ports/cuda/plan/convolution.hpp"

namespace lockstep::cuda {

/// Where something lies in a program's block of memory, in bytes.
using Place = std::size_t;
constexpr Place nowhere = static_cast<Place>(-1);

/// A convolution (or linear layer) with its three passes; those that are not run have no plan.
struct PlannedConv {
  ConvShape shape;
  backend::Precision precision = backend::Precision::fp32;
  ConvFusion fusion;
  const ConvPlan *forward = nullptr, *data_gradient = nullptr, *weight_gradient = nullptr;
  std::size_t gradient_scratch = 0;  ///< bytes in front of the weight gradient's workspace, where
                                     ///< it lies until it is added to the arena
};

struct HeadPlaces {
  Place pooled = nowhere, logits = nowhere, dlogits = nowhere, dpooled = nowhere,
        row_metrics = nowhere;
};

struct PlannedUnit {
  Unit unit;
  Matrix shape;  ///< of the unit's value; for a head, of what it reads
  /// Kept until its last reader, in forward or backward, is done; nowhere for a batch norm that its
  /// reader applies.
  Place value = nowhere;
  Place extra = nowhere;  ///< norm: per-channel numbers; max_pool: index
  HeadPlaces head;
  std::optional<PlannedConv> conv;
  /// Gradients that this unit's backward makes, of its input and of its skip. A norm's lies where
  /// the convolution's output was, and the skip's where the gradient of its own value was.
  Place input_gradient = nowhere, skip_gradient = nowhere;
  /// A fused convolution's sums for the batch norm behind it (NormOperands), and in backward those
  /// for the batch norm that it applied.
  Place sums = nowhere, gradient_sums = nowhere;
  std::vector<Place> gradients;  ///< one or two that make up its value's, from its readers
};

/// A network compiled for one batch shape and precision, as far as that needs no device.
struct ProgramPlan {
  Storage storage = Storage::fp32;
  bool training = true;
  std::vector<PlannedUnit> units;
  std::size_t block = 0;          ///< bytes for all values and gradients, placed by liveness
  std::size_t without_reuse = 0;  ///< the same if nothing shared memory
  std::size_t workspace = 0;      ///< bytes of scratch, which all steps share
};

/// What a convolution or head asks the planner for: one request for each pass that it runs.
std::vector<ConvRequest> conv_requests(const nn::Network& network, const Unit& unit,
                                       const Unit& input, const backend::ProgramSpec& spec,
                                       const ConvFusion& fusion);

/// What each unit's convolution takes in, where the program asks for it and all its passes have
/// engines.
std::vector<ConvFusion> choose_fusions(const nn::Network& network, const std::vector<Unit>& units,
                                       const backend::ProgramSpec& spec, ConvPlanner& planner);

/// Throws Error as lower() and ConvPlanner::plan() do.
ProgramPlan plan_program(const nn::Network& network, const backend::ProgramSpec& spec,
                         ConvPlanner& planner);

/// Which precision multiplies the pooled features: the head is small, so it keeps all digits.
backend::Precision head_precision(backend::Precision precision);

}  // namespace lockstep::cuda
