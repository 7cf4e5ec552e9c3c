#pragma once

#include "lockstep/sys/launch.hpp"

namespace lockstep::comm {

/// What the MPI library that this program is linked with is; may be asked before MPI_Init.
sys::MpiLibrary mpi_library();

}  // namespace lockstep::comm
