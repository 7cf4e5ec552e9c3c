#pragma once

#include "ports/mpi/call.hpp"

#include <functional>
#include <memory>

#include "lockstep/comm/fabric.hpp"

namespace lockstep::mpi {

/// A separate communicator for one kind of messages. Collective; calls `poll` until all have come.
/// MPI_Finalize frees it: freeing it earlier would be one more wait for all ranks.
MPI_Comm duplicate(MPI_Comm comm, const std::function<void()>& poll);

/// `comm` has all ranks of the world, and no other messages.
std::unique_ptr<comm::Fabric> make_mpi_fabric(MPI_Comm comm);

}  // namespace lockstep::mpi
