#include "lockstep/backend/preflight.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep {

PreflightReport preflight(const PreflightSpec&) {
  throw InputError(
      "preflight asks cuDNN, and this lockstep was built without CUDA: build it with CUDA=1 on a "
      "machine with the CUDA toolkit, cuDNN and NCCL (no GPU is needed)");
}

}  // namespace lockstep
