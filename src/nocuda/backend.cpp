#include "lockstep/backend/backend.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep {

int cuda_device_count() { return 0; }

std::unique_ptr<Backend> make_cuda_backend(int) {
  throw InputError("this lockstep was built without CUDA");
}

}  // namespace lockstep
