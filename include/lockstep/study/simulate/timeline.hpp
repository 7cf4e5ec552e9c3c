#pragma once

// When the buckets of a step are full, sent and summed: a step's time on ranks that are not here.

#include <cstddef>
#include <functional>
#include <vector>

#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/nn/arena.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/study/machine/machine.hpp"

namespace lockstep::study {

/// One bucket's way through a step; times from the step's start, in ms.
struct BucketTimes {
  double bytes = 0;
  double ready_ms = 0;  ///< its last gradient is final
  double start_ms = 0;  ///< its all-reduce begins to move
  double end_ms = 0;    ///< its sum has arrived
};

struct StepTimeline {
  double forward_ms = 0, backward_ms = 0, update_ms = 0;
  double exposed_ms = 0;  ///< the device waits for sums that backward did not hide
  double jitter_ms = 0;   ///< the slowest rank is later than the middle one
  double norms_ms = 0;    ///< ranks wait for each other's batch norms (norm_gathers())
  std::vector<BucketTimes> buckets;
  double compute_ms() const { return forward_ms + backward_ms + update_ms; }
  double step_ms() const { return compute_ms() + norms_ms + exposed_ms + jitter_ms; }
};

using CostOf = std::function<ReduceCost(double bytes)>;

/// Runs one step, as train::Trainer does: buckets of `bucket_bytes` are summed in their order while
/// backward continues, then each is waited for and updated. Pure.
StepTimeline simulate_step(const backend::TimedTape& tape, const nn::ArenaLayout& layout,
                           std::size_t bucket_bytes, const CostOf& cost);

/// The same for ranks that differ: a bucket moves when all of them have filled it, and each begins
/// a step when it has ended the one before. By rank, a step after their lengths have settled; its
/// times are from when that rank began it. Pure. REQUIRES: a tape for each rank, one at least.
std::vector<StepTimeline> simulate_ranks(const std::vector<backend::TimedTape>& tapes,
                                         const nn::ArenaLayout& layout, std::size_t bucket_bytes,
                                         const CostOf& cost);

/// The same for steps that are not alike, by step and rank: each rank begins a step when it has
/// ended the one before. REQUIRES: a tape for each rank in each step, and each step's cost.
std::vector<std::vector<StepTimeline>> simulate_unlike_steps(
    const std::vector<std::vector<backend::TimedTape>>& steps, const nn::ArenaLayout& layout,
    std::size_t bucket_bytes, const std::vector<CostOf>& costs);

// What ranks send that share batch norm's statistics (model-options.norm-ranks), and how long a
// step waits for it.

/// One gather of a step. Batch norms whose numbers are needed at the same time share one.
struct NormGather {
  std::vector<std::size_t> norms;  ///< nodes
  bool backward = false;           ///< else of forward
  std::size_t floats = 0;          ///< that a rank gives to each other one of its group
  double bytes() const { return static_cast<double>(floats * sizeof(float)); }
};

/// Those of a micro-batch, forward's first; of each, the order does not matter. Pure.
std::vector<NormGather> norm_gathers(const nn::Network& network);

/// Seconds of a gather in which each rank gives `bytes` bytes to each other one of its group.
using GatherSeconds = std::function<double(double bytes)>;

/// The tape of ranks that wait for each gather: the steps take that much longer. Pure.
backend::TimedTape with_gathers(const backend::TimedTape& tape, const nn::Network& network,
                                const GatherSeconds& gather_s);

/// simulate_step() of ranks that wait for each gather: StepTimeline::norms_ms. Pure.
StepTimeline simulate_step(const backend::TimedTape& tape, const nn::Network& network,
                           std::size_t bucket_bytes, const CostOf& cost,
                           const GatherSeconds& gather_s);

}  // namespace lockstep::study
