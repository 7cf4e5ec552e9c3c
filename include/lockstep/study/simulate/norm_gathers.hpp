#pragma once

// What ranks send that share batch norm's statistics (model-options.norm-ranks), and how long a
// step waits for it.

#include <cstddef>
#include <functional>
#include <vector>

#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/nn/arena.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/study/simulate/timeline.hpp"

namespace lockstep::study {

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

/// simulate_step() of ranks that wait for each gather: StepTimeline::norms_ms. Pure.
StepTimeline simulate_step(const backend::TimedTape& tape, const nn::Network& network,
                           std::size_t bucket_bytes, const CostOf& cost,
                           const GatherSeconds& gather_s);

}  // namespace lockstep::study
