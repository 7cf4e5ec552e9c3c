#pragma once

#include "lockstep/cluster/identity/identify.hpp"

namespace lockstep::comm {

/// Describes the MPI library that this program is linked with. May be called before MPI_Init.
cluster::MpiLibrary mpi_library();

}  // namespace lockstep::comm
