#pragma once

#include "app/start/launch.hpp"

namespace lockstep::app {

// How one process of many ends on an error: what all ranks find alike is said once, and the status
// is the same everywhere.

/// This process's rank, as well as it can be told: 0 where that cannot be known.
int likely_rank(const Launch& launch);

/// Lets rank 0 speak first, whose end ends the others: an error that all ranks find alike (a
/// missing file, a typing error) is said once. Rank 0 returns at once; the others wait for two
/// seconds, in which the launcher's SIGTERM ends them with `status`.
void wait_for_turn(const Launch& launch, int status);

/// Says what went wrong, after wait_for_turn(), and ends all ranks, which may be waiting for this
/// one. Returns `status` when there are no others to end.
int fail(const Launch& launch, const char* what, int status);

}  // namespace lockstep::app
