#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::cuda {

/// Division by a number that the host knows, exact for all n below 2^31: a multiplication and a
/// shift, where a GPU's division takes 20 instructions or more (Granlund and Montgomery 1994).
struct Divider {
  unsigned divisor, factor, shift = 31;

  /// number: 1 or more.
  explicit Divider(int number) : divisor(static_cast<unsigned>(number)) {
    while ((std::uint64_t{1} << (shift - 31)) < divisor) ++shift;
    factor = static_cast<unsigned>((std::uint64_t{1} << shift) / divisor + 1);
  }
  __host__ __device__ unsigned quotient(unsigned n) const {
    return static_cast<unsigned>((std::uint64_t{n} * factor) >> shift);
  }
};

}  // namespace lockstep::cuda
