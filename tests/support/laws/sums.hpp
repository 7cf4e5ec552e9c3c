#pragma once

#include <cstddef>
#include <vector>

#include "tests/support/harness/mpi_world.hpp"

namespace lockstep::test {

/// Small integers, different on each rank and in each place: their sums are exact in any order.
inline float small_integer(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101) - 50;
}

inline std::vector<float> small_integers(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = small_integer(rank, i);
  return values;
}

/// True when each value is the sum of all ranks' small integers in its place.
inline bool is_sum(const std::vector<float>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    float sum = 0;
    for (int r = 0; r < world().facts().world; ++r) sum += small_integer(r, i);
    if (values[i] != sum) return false;
  }
  return true;
}

}  // namespace lockstep::test
