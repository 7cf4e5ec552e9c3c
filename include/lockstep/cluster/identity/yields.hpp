#pragma once

#include <string>

#include "lockstep/cluster/identity/identify.hpp"

namespace lockstep::cluster {

/// What to know about a variable of this environment that makes Open MPI's ranks yield the core
/// without end while they wait: its name, what it does, and what lockstep does about it. Empty
/// where none does.
std::string describe_endless_yields(const EnvLookup& env);

}  // namespace lockstep::cluster
