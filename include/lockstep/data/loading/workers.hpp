#pragma once

#include <cstddef>

#include "lockstep/data/loading/loader.hpp"

namespace lockstep::data {

struct WorkerChoice {
  std::size_t workers = 1;
  double rows_per_s = 0, rows_per_s_of_one = 0;  ///< 0: there was no choice to measure
};

/// Chooses how many threads a loader should have, up to `most`. It tries 1, 2, 4 ... for a fraction
/// of a second each, reading and augmenting the first rows of the loader of `spec`, as long as more
/// threads bring a tenth more. Then it takes the fewest that come within a twentieth of the best.
/// Throws InputError as the loader would.
WorkerChoice choose_workers(const DataSet& rows, const LoaderSpec& spec, std::size_t most);

}  // namespace lockstep::data
