#include "ports/cuda/runtime/early_start.hpp"

#include <cuda_runtime.h>

#include "ports/cuda/runtime/check.hpp"

namespace lockstep::cuda {

namespace {

// The code decides and not the GPU: code for older ones, which a newer one's driver compiles again,
// does not wait.
bool code_waits(const void* kernel) {
  constexpr int first_that_waits = 90;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  return attributes.ptxVersion >= first_that_waits;
}

}  // namespace

bool may_start_early(const void* kernel) {
  static const bool may = code_waits(kernel);
  return may;
}

}  // namespace lockstep::cuda
