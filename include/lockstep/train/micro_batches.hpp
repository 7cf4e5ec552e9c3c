#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::train {

/// One forward and backward of one rank.
struct MicroBatch {
  std::size_t first = 0;        ///< its first row in the rank's batch
  std::size_t rows = 0;         ///< of this rank
  std::size_t global_rows = 0;  ///< of all ranks, in this micro-batch
};

/// Cuts one rank's part of a global batch into micro-batches. Every rank that has rows makes the
/// same number of them, of at least one row each. Their sizes differ by at most one row, the
/// earlier ones being larger; a full batch gives `accumulate` equal ones. If some ranks have no
/// rows, every rank makes one micro-batch, and theirs has 0 rows. Rows are shared as the sampler
/// shares them: evenly, the lower ranks taking one more. `full_rows`: rows of a full micro-batch.
/// Pure.
std::vector<MicroBatch> plan_micro_batches(std::size_t global_rows, int world, int rank,
                                           std::size_t full_rows);

}  // namespace lockstep::train
