#pragma once

#include "lockstep/cluster/identity/identify.hpp"

namespace lockstep::cluster {

/// What to change when a launcher said `claim` and MPI says otherwise.
std::string remedy(const EnvLookup& env, const Claim& claim, const MpiWorld& mpi,
                   const SrunMpiTypes& types);

}  // namespace lockstep::cluster
