#include "lockstep/comm/nccl.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::comm {

std::unique_ptr<Communicator> make_nccl_communicator(Control&, const NcclSpec&) {
  throw InputError("this lockstep was built without CUDA, and so without NCCL");
}

}  // namespace lockstep::comm
