#include "ports/mpi/add.hpp"

namespace lockstep::comm {

__attribute__((target_clones("avx512f", "avx2", "default"))) void add(float* __restrict total,
                                                                      const float* __restrict part,
                                                                      std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) total[i] += part[i];
}

}  // namespace lockstep::comm
