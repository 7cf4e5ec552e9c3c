#pragma once

#include <memory>

#include "lockstep/comm/absence.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"

namespace lockstep::comm {

struct NcclSpec {
  double deadline_s = 120;  ///< for the start, and without any collective's end afterwards
  bool share_gpu = false;   ///< ranks of a machine may use one GPU (tests, parts of a MIG device)
  bool deterministic = false;  ///< one algorithm and protocol, so that sums have the same bits in
                               ///< each run; what NCCL_ALGO and NCCL_PROTO say goes before
  FindAbsence find_absence = {};  ///< asked when a collective does not end
};

/// Collectives between GPUs, on this thread's current device. Collective over `control`. A world of
/// one rank never calls NCCL.
///
/// Nothing here makes the host wait for the GPU, so a peer that is lost shows only in collectives
/// that do not end. A thread watches over them: when none has ended for the deadline, or NCCL
/// reports an error, it asks the heartbeats who is missing, ends NCCL's kernels (ncclCommAbort), so
/// that whoever waits for the GPU wakes, and the next call into the communicator throws Error with
/// the step, the collective and the ranks that are missing. Where that does not help within some
/// seconds, it says so itself and ends the world.
std::unique_ptr<Communicator> make_nccl_communicator(Control& control, const NcclSpec& spec);

}  // namespace lockstep::comm
