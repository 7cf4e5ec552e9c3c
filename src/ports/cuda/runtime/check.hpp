#pragma once

#include <cuda_runtime.h>

#include <source_location>

namespace lockstep::cuda {

/// Throws Error naming the call, CUDA's reason and the place when a CUDA call failed. `call`: the
/// request in a reader's words ("cudaMalloc of 12 GB").
void check_cuda(cudaError_t status, const char* call,
                const std::source_location& where = std::source_location::current());

}  // namespace lockstep::cuda
