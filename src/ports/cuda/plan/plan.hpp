#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/backend/lifetimes.hpp"
#include "lockstep/backend/preflight.hpp"
#include "lockstep/backend/program.hpp"
#include "lockstep/backend/rates.hpp"
#include "lockstep/nn/network.hpp"
#include "ports/cuda/device.hpp"
#include "ports/cuda/kernels/kernels.hpp"
#include "ports/cuda/lowering.hpp"
#include "ports/cuda/plan/engines/conv_engines.hpp"
#include "ports/cuda/plan/fusion.hpp"

namespace lockstep::cuda {

/// The alignment of all buffers in a program's block, in bytes: what cudaMalloc gives and cuDNN
/// prefers.
constexpr std::size_t block_alignment = 256;
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + block_alignment - 1) / block_alignment * block_alignment;
}

/// A buffer of a program, and what its life follows from.
struct BufferRequest {
  std::size_t bytes = 0;
  std::size_t unit = 0;          ///< whose forward makes it, or whose backward
  bool of_backward = false;      ///< its backward does
  std::size_t last_forward = 0;  ///< the last unit whose forward uses it
  /// The unit whose backward uses it last; nothing: only forward uses it.
  std::optional<std::size_t> last_backward = {};
  bool repeated = false;  ///< made again when its unit runs forward again
  bool always = false;    ///< each slot keeps it all the time: what passes a boundary
};

/// The units at the network's cut points whose values can be kept, in order. `applied`: by unit,
/// the batch norms whose readers read what is before them.
std::vector<std::size_t> cut_units(const nn::Network& network, const std::vector<Unit>& units,
                                   const std::vector<bool>& applied);

/// Which buffer is in use when. The parts of forward are units.
class Lifetimes final : public backend::Lifetimes {
 public:
  /// `units` and `requests` must outlive it. `applied`: as for cut_units().
  Lifetimes(const nn::Network& network, const std::vector<Unit>& units,
            const std::vector<BufferRequest>& requests, const std::vector<bool>& applied,
            bool training);
  /// True for units that backward runs forward again: those of a span that is made again whose
  /// values, or what else they make, backward reads or another such unit does. The unit that ends
  /// the span is kept.
  bool made_again(std::size_t unit) const override { return again_at(unit) > 0; }

 private:
  std::size_t span_of(std::size_t unit) const override { return span_with(unit, unit); }
  std::vector<bool> needed_again(std::size_t begin, std::size_t end) const override;
  std::vector<backend::PlannedBuffer> requested() const override;
  backend::Lives lives(const BufferRequest& request) const;

  const std::vector<Unit>& units_;
  const std::vector<BufferRequest>& requests_;
};

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

/// The tape's steps in order, with the program's names, and in training the update: the least that
/// each step does, and how long that takes at these rates.
std::vector<backend::StepFloor> floors(const nn::Network& network, const ProgramPlan& plan,
                                       const std::optional<backend::GpuRates>& rates);

/// Bytes that a program and its parameters take on the device.
backend::PreflightMemory memory_of(const nn::Network& network, const backend::ProgramSpec& spec,
                                   const ProgramPlan& plan);

/// True when this much memory, out of `bytes`, leaves room for what is added in the first step: the
/// code of cuDNN's kernels, NCCL's connections.
bool fits_into(const backend::PreflightMemory& memory, double bytes);

/// The largest micro-batch whose program has fast plans and fits into `bytes`; 0 if there is none.
/// Exact to one part in 16, because planning every size in between would take minutes. The search
/// starts at spec.batch.
std::size_t largest_batch(const nn::Network& network, const backend::ProgramSpec& spec,
                          ConvPlanner& planner, double bytes);

/// Throws InputError when a program and its parameters do not fit into the `free` of the device's
/// `total` bytes, naming the memory needed and the largest batch that fits.
void require_fit(const nn::Network& network, const backend::ProgramSpec& spec, ConvPlanner& planner,
                 std::size_t free, std::size_t total);

/// Measures rates, each the best of some runs: a copy within the device's memory (bytes read and
/// written), and cuDNN's product of matrices of random numbers, [32 * channels, channels] by
/// [channels, channels], in each precision. `channels`: a multiple of 32; with the usual value this
/// takes about 1.1 GB of device memory for the time being.
backend::GpuRates measure_rates(CudaDevice& device, ConvPlanner& planner,
                                std::size_t channels = 2048);

/// Times plans, and the kernels that fused plans save. Its operands lie in memory that grows with
/// the largest request so far: inputs of random numbers, and separate outputs, so that every run
/// reads numbers of a training's size.
class PlanTimer {
 public:
  explicit PlanTimer(CudaDevice& device) : device_(device) {}
  /// The seconds of the fastest of some runs. Throws Error where the plan cannot run, InputError
  /// where its memory does not fit.
  double seconds(const ConvRequest& request, const ConvPlan& plan);
  double seconds(NormPart part, const Matrix& shape, Storage storage);

 private:
  std::byte* room(DeviceBuffer& buffer, std::size_t bytes);

  CudaDevice& device_;
  DeviceBuffer inputs_, outputs_, workspace_;
};

}  // namespace lockstep::cuda
