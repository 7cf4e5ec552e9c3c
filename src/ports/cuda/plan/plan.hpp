#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/backend/program.hpp"
#include "ports/cuda/kernels/kernels.hpp"
#include "ports/cuda/lowering.hpp"
#include "ports/cuda/plan/engines/conv_engines.hpp"
#include "ports/cuda/plan/fusion.hpp"
#include "ports/cuda/plan/lifetimes.hpp"

namespace lockstep::cuda {

/// The number of a place in a program's block of memory; ProgramPlan::offset() says where it is.
using Place = std::size_t;
constexpr Place nowhere = static_cast<Place>(-1);

/// What the names of steps that backward runs again end with.
constexpr const char* made_again_suffix = " again";

/// A convolution (or linear layer) with its three passes; a pass that is not run has no plan.
struct PlannedConv {
  ConvShape shape;
  backend::Precision precision = backend::Precision::fp32;
  ConvFusion fusion;
  const ConvPlan *forward = nullptr, *data_gradient = nullptr, *weight_gradient = nullptr;
  std::optional<Fold> fold;  ///< of its weights: `shape` is then the folded one
  /// Bytes before the workspaces of the passes that hold folded weights for forward, and the weight
  /// gradient until it is added to the arena.
  std::size_t weights_scratch = 0, gradient_scratch = 0;
};

struct HeadPlaces {
  Place pooled = nowhere, logits = nowhere, dlogits = nowhere, dpooled = nowhere,
        row_metrics = nowhere;
};

/// What passes a boundary of a stage: the values, then the gradients from each of their readers.
struct BoundaryPlaces {
  Place values = nowhere, gradients = nowhere;
  std::size_t bytes = 0;  ///< of the values, and of each reader's gradients
  std::size_t readers = 0;
};

struct PlannedUnit {
  Unit unit;
  Matrix shape;  ///< of the unit's value; for a head, of its input
  /// Kept until its last reader, in forward or backward, is done; nowhere for a batch norm that its
  /// reader applies: a convolution, or the batch norm whose skip it is.
  Place value = nowhere;
  Place extra = nowhere;  ///< norm: per-channel numbers; max_pool: index
  Place mask = nowhere;   ///< of a batch norm with a sum and a ReLU, in training: Mask::from_bits
  HeadPlaces head;
  std::optional<PlannedConv> conv;
  /// The gradients of this unit's input and skip, which its backward makes. A norm's input gradient
  /// takes the place of the convolution's output, and its skip gradient the place of the gradient
  /// of the norm's value.
  Place input_gradient = nowhere, skip_gradient = nowhere;
  /// A fused convolution's sums for the batch norm after it (NormOperands), and in backward the
  /// sums for the batch norm that it applied.
  Place sums = nowhere, gradient_sums = nowhere;
  std::vector<Place>
      gradients;  ///< one or two, from its readers; their sum is its value's gradient
};

/// The part of a compiled network that needs no device, for one batch shape and precision.
struct ProgramPlan {
  Storage storage = Storage::fp32;
  bool training = true;
  std::size_t batch = 0;
  std::optional<Fold> fold;  ///< of the image
  std::vector<PlannedUnit> units;
  std::vector<Lifetimes::Step> after_forward;  ///< what follows forward on the tape
  double made_again = 0;                       ///< share of forward's operations
  BoundaryPlaces received, sent;
  /// By slot, for forward and for what comes after it, and by place: bytes from the block's start.
  backend::Placement::Offsets offsets;
  std::size_t offset(Place place, bool later = false, std::size_t slot = 0) const {
    return offsets[slot][later][place];
  }
  std::size_t block = 0;          ///< bytes for all values and gradients, placed by liveness
  std::size_t without_reuse = 0;  ///< the same if nothing shared memory
  std::size_t workspace = 0;      ///< bytes of scratch, which all steps share
  std::size_t tickets = 0;        ///< norm_tickets() of the largest batch norm
};

/// Where the reader of a batch norm has put the sums for its gradients; nowhere if it makes none.
inline Place sums_of_gradient(const ProgramPlan& plan, const PlannedUnit& norm) {
  return plan.units[norm.unit.readers.at(0)].gradient_sums;
}

/// False for the image, and for what frozen layers made.
bool wants_gradient(const nn::Network& network, const Unit& unit);

/// The requests of a convolution or head to the planner: one for each pass that it runs.
std::vector<ConvRequest> conv_requests(const nn::Network& network, const Unit& unit,
                                       const Unit& input, const backend::ProgramSpec& spec,
                                       const ConvFusion& fusion);

/// `available`: bytes of the block that other programs already have, which a program with a memory
/// limit tries to use. Throws Error like lower() and ConvPlanner::plan(), and InputError like
/// backend::choose_placement().
ProgramPlan plan_program(const nn::Network& network, const backend::ProgramSpec& spec,
                         ConvPlanner& planner, std::size_t available = 0);

/// The precision that multiplies the pooled features. The head's values stay 32-bit; only fp32
/// keeps all digits in its products, which without tensor cores take four times as long.
backend::Precision head_precision(backend::Precision precision);

}  // namespace lockstep::cuda
