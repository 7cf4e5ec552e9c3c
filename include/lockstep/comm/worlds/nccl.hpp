#pragma once

#include <memory>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/waits/absence.hpp"

namespace lockstep::comm {

struct NcclSpec {
  double deadline_s = 120;  ///< for the start, and later for the next collective to end
  bool share_gpu = false;   ///< ranks of a machine may use one GPU (tests, parts of a MIG device)
  bool deterministic = false;  ///< one algorithm and protocol, so that sums have the same bits in
                               ///< each run; NCCL_ALGO and NCCL_PROTO take precedence
  FindAbsence find_absence = {};  ///< asked when a collective does not end
};

/// Collectives between GPUs, on this thread's current device. Collective over `control`. A world of
/// one rank never calls NCCL.
///
/// Nothing here makes the host wait for the GPU, so a lost peer shows only in collectives that do
/// not end. A thread watches those of all groups. When none has ended for the deadline, or NCCL
/// reports an error, it asks the heartbeats which ranks are missing and ends NCCL's kernels
/// (ncclCommAbort). This wakes threads that wait for the GPU, and the next call into the
/// communicator throws Error with the step, the collective and the missing ranks. If that does not
/// happen within some seconds, the thread prints the error and ends the world.
std::unique_ptr<Communicator> make_nccl_communicator(Control& control, const NcclSpec& spec);

}  // namespace lockstep::comm
