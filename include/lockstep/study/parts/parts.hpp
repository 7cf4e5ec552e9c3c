#pragma once

// Which part of a training each of N ranks may take (replicas, stages, tiles, micro-batches, values
// made again): what fits into a rank's memory, and which of that is fastest.

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/backend/pace.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/study/machine/machine.hpp"
#include "lockstep/train/pipeline/schedule.hpp"

namespace lockstep::study {

/// One way to share a training over ranks.
struct Parts {
  std::size_t replicas = 1, stages = 1, tiles = 1;
  std::size_t micro_batches = 1;                                   ///< of a replica's rows
  train::PipelineOrder order = train::PipelineOrder::one_f_one_b;  ///< of stages
  bool again = false;  ///< values are made again: as few as the limit allows
  bool operator==(const Parts&) const = default;
  std::size_t ranks() const { return replicas * stages * tiles; }
};

/// What its program takes of a rank's memory, or nothing where that is not possible.
using MemoryOf =
    std::function<backend::PlannedMemory(const nn::Network&, const backend::ProgramSpec&)>;

/// What is not to be chosen, because it is given.
struct FixedParts {
  std::optional<std::size_t> stages, tiles, micro_batches;
  std::optional<train::PipelineOrder> order;
  std::optional<backend::Recompute> recompute;
};

/// The question. The functions are pure.
struct PartsSpec {
  nn::Network network;
  backend::ProgramSpec program;  ///< what Parts says, and the rows, are left open
  std::size_t ranks = 1, batch = 1;
  FixedParts fixed = {};
  bool passes_values = true;  ///< else neither stages nor tiles
  std::size_t bucket_bytes = 0;
  std::size_t memory_limit = 0;  ///< bytes of a rank's process
  MemoryOf memory;
  /// What the process takes in addition to that: bytes.
  std::function<std::size_t(const Parts&, std::size_t stage)> other_bytes;
  backend::Pace pace;
  NetworkProfile links;
  std::size_t per_node = 1;  ///< ranks
  /// What a sum over these ranks costs.
  std::function<ReduceCost(const Layout& layout, double bytes)> sum;
};

/// What a step of one way would be.
struct PartsStep {
  double step_ms = 0;
  double compute_ms = 0;                ///< of the mean rank, without what is made again
  double gathers_ms = 0, halos_ms = 0;  ///< of tiles, exposed
};

/// Memory of the ranks of a replica.
struct RanksMemory {
  std::size_t bytes = 0;           ///< of the process that takes the most
  std::size_t stage = 0;           ///< which that is in
  std::vector<double> made_again;  ///< shares of forward, by stage
};

struct PlannedParts {
  Parts parts;
  PartsStep step;
  RanksMemory memory;
};

struct PartsAnswer {
  std::vector<PlannedParts> fitting;      ///< the fastest first; some
  std::optional<PlannedParts> too_large;  ///< the fastest that does not fit
  std::optional<PlannedParts> smallest;   ///< of all, where nothing fits
  /// One rank for a replica, with the first one's micro-batches and values made again, where that
  /// takes less memory than the first one, which has stages.
  std::optional<PlannedParts> without_stages;
};

/// Rows of the largest micro-batch.
std::size_t rows_of(const PartsSpec& spec, const Parts& parts);

/// The network's stages, as train cuts them.
std::vector<nn::Network> stages_of(const PartsSpec& spec, std::size_t stages);

/// How long a step takes. `made_again`: shares of forward, by stage; empty: none.
PartsStep time_of(const PartsSpec& spec, const Parts& parts,
                  const std::vector<double>& made_again = {});

/// With `again`, stages that are too large make values again: as few as the limit allows or, where
/// none does, so that they take as little memory as possible.
RanksMemory memory_of(const PartsSpec& spec, const Parts& parts);

/// Looks for the fastest way that fits, in the order of times without anything made again. Throws
/// InputError where the network or the batch cannot be shared at all.
PartsAnswer plan_parts(const PartsSpec& spec);

}  // namespace lockstep::study
