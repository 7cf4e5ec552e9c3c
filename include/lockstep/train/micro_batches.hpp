#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::train {

/// One forward and backward of one rank.
struct MicroBatch {
  std::size_t first = 0;        ///< row of the rank's batch
  std::size_t rows = 0;         ///< of this rank
  std::size_t global_rows = 0;  ///< of all ranks, in this micro-batch
};

/// Cuts one rank's part of a global batch into micro-batches. Every rank that has rows makes the
/// same number of them, of at least one row each, as equal as can be, the earlier ones taking one
/// more; a full batch gives `accumulate` equal ones. Where some ranks have no row at all, the
/// others make one and those get one of 0 rows. Rows are shared as the sampler shares them: evenly,
/// the lower ranks taking one more. `full_rows`: rows of a full micro-batch. Pure.
std::vector<MicroBatch> plan_micro_batches(std::size_t global_rows, int world, int rank,
                                           std::size_t full_rows);

}  // namespace lockstep::train
