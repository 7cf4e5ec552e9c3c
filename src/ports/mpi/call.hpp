#pragma once

// Why nothing waits inside MPI. A blocking call of MPI takes a core from ranks that compute, or
// yields it without end, as Open MPI does with more ranks than cores. On Linux 6.18 such yields
// keep all else on the node off its cores for many seconds, so that ranks count as lost. So each
// wait for other ranks polls, naps (device/idle.hpp) and has a deadline, and tests/check_layers
// accepts only calls of MPI that return at once. So a split makes no communicator of MPI, and who
// shares a node, the ranks tell each other. MPI_Init and MPI_Finalize nap on their own, and
// comm::World switches Open MPI's yields off: each call that finds nothing would yield, even
// between naps.

#define OMPI_SKIP_MPICXX 1  // MPI's own C++ classes, long deprecated, would have to be linked too
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <source_location>
#include <string>

#include "lockstep/base/error.hpp"

namespace lockstep::mpi {

/// Throws Error with MPI's text when an MPI call failed. Every call needs it, since all of them run
/// with MPI_ERRORS_RETURN.
inline void must(int code, const std::source_location& where = std::source_location::current()) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  check(false, "MPI: " + std::string(text, static_cast<std::size_t>(length)), where);
}

/// True once `request` has finished; it is then MPI_REQUEST_NULL.
inline bool finished(MPI_Request& request,
                     const std::source_location& where = std::source_location::current()) {
  int done = 0;
  must(MPI_Test(&request, &done, MPI_STATUS_IGNORE), where);
  return done != 0;
}

}  // namespace lockstep::mpi
