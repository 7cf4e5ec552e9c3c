#pragma once

#include <cstdint>

#include "ports/cuda/kernels/vector.cuh"

namespace lockstep::cuda {

/// One channel of a pixel as the network reads it: bytes are normalised, floats already are.
__device__ inline float entered(std::uint8_t pixel, const float* scale, const float* shift, int c) {
  return backend::arithmetic::normalised(pixel, {scale[c], shift[c]});
}
__device__ inline float entered(float value, const float*, const float*, int) { return value; }

}  // namespace lockstep::cuda
