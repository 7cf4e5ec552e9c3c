#include "ports/cuda/runtime/check.hpp"

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

namespace lockstep::cuda {

void check_cuda(cudaError_t status, const char* call, const std::source_location& where) {
  if (status == cudaSuccess) [[likely]]
    return;
  throw Error(fmt::format("{}: {} ({}) [{}:{}]", call, cudaGetErrorString(status),
                          cudaGetErrorName(status), where.file_name(), where.line()));
}

}  // namespace lockstep::cuda
