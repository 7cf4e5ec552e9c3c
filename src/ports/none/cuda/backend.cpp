#include "lockstep/backend/backend.hpp"
#include "lockstep/backend/preflight.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/worlds/nccl.hpp"
#include "lockstep/device/gpus.hpp"

namespace lockstep::backend {

std::unique_ptr<backend::Backend> make_cuda_backend(int) {
  throw InputError("this program was built without CUDA");
}

backend::PreflightReport preflight(const backend::PreflightSpec&) {
  throw InputError(
      "preflight asks cuDNN, and this program was built without CUDA: build it with CUDA=1 on a "
      "machine with the CUDA toolkit, cuDNN and NCCL (no GPU is needed)");
}

}  // namespace lockstep::backend

namespace lockstep::device {

device::VisibleGpus look_at_gpus() { return {{}, "this program was built without CUDA", ""}; }

}  // namespace lockstep::device

namespace lockstep::comm {

std::unique_ptr<comm::Communicator> make_nccl_communicator(comm::Control&, const comm::NcclSpec&) {
  throw InputError("this program was built without CUDA, and so without NCCL");
}

std::unique_ptr<ActivityObserver> make_phase_ranges(const ActivityTracker&) { return nullptr; }

}  // namespace lockstep::comm
