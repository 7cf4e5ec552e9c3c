#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/comm/nodes.hpp"

namespace lockstep::train {

/// One forward and backward of one replica.
struct MicroBatch {
  std::size_t first = 0;        ///< its first row in the replica's batch
  std::size_t rows = 0;         ///< of this replica
  std::size_t global_rows = 0;  ///< of all replicas, in this micro-batch
};

/// Cuts one replica's part of a global batch into micro-batches. Every replica that has rows makes
/// the same number of them, of at least one row each. Their sizes differ by at most one row, the
/// earlier ones being larger; a full batch gives `accumulate` equal ones. If some replicas have no
/// rows, every replica makes one micro-batch, and theirs has 0 rows. Rows are shared as the sampler
/// shares them: evenly, the lower replicas taking one more. `full_rows`: rows of a full
/// micro-batch. Pure.
std::vector<MicroBatch> plan_micro_batches(std::size_t global_rows, int replicas, int replica,
                                           std::size_t full_rows);

/// The same for a batch that is cut into shards, each of which is one micro-batch: those that the
/// replica has. Some may have no rows, if the batch has fewer than shards. 0 shards: by the
/// function above. Pure.
std::vector<MicroBatch> plan_own(std::size_t global_rows, std::size_t shards, std::size_t full_rows,
                                 const comm::GridAxis& replica);
/// The rows of all of them. Pure.
std::size_t own_rows(std::size_t global_rows, std::size_t shards, const comm::GridAxis& replica);

}  // namespace lockstep::train
