#pragma once

#include "ports/mpi/call.hpp"

#include "lockstep/device/idle.hpp"
#include "ports/mpi/rank_deadline.hpp"

namespace lockstep::comm {

/// A separate communicator of the same ranks. Collective. MPI_Finalize frees it: freeing it earlier
/// would be one more wait for all ranks.
inline MPI_Comm duplicate(MPI_Comm comm, RankDeadline& deadline) {
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  must(MPI_Comm_idup(comm, &made, &request));
  for (device::Idle idle; !finished(request); idle()) deadline.poll();
  return made;
}

}  // namespace lockstep::comm
