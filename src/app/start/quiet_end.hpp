#pragma once

#include <string>

#include "app/start/launch.hpp"

namespace lockstep::app {

// Open MPI's mpirun writes paragraphs when a rank ends with a status other than 0, but
// none when MPI ends all ranks with that status.

/// Whether Open MPI's mpirun started this process.
bool under_mpirun();

/// Starts MPI on a rank that ends before Launch::start(), so that end_ranks() can follow. The other
/// ranks have the same fault, or start MPI anyway. If they do not come within 3 s, this process
/// ends with `status`, after `last_words` on stderr. Does nothing under other launchers, and for
/// commands of which only rank 0 does something.
void join_to_end(Launch& launch, int status, const std::string& last_words);

/// Ends all ranks after a run that was stopped: mpirun's status is `status`. Collective. Returns
/// under other launchers.
void end_ranks(Launch& launch, int status);

}  // namespace lockstep::app
