#include "lockstep/backend/preflight.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::backend {

backend::PreflightReport preflight(const backend::PreflightSpec&) {
  throw InputError(
      "preflight asks cuDNN, and this program was built without CUDA: build it with CUDA=1 on a "
      "machine with the CUDA toolkit, cuDNN and NCCL (no GPU is needed)");
}

}  // namespace lockstep::backend
