#pragma once

#include "lockstep/cluster/identify.hpp"

namespace lockstep::comm {

/// What the MPI library that this program is linked with is; may be asked before MPI_Init.
cluster::MpiLibrary mpi_library();

}  // namespace lockstep::comm
