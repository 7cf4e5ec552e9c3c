#include "lockstep/comm/worlds/nccl.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::comm {

std::unique_ptr<comm::Communicator> make_nccl_communicator(comm::Control&, const comm::NcclSpec&) {
  throw InputError("this program was built without CUDA, and so without NCCL");
}

}  // namespace lockstep::comm
