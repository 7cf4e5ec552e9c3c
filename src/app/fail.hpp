#pragma once

#include <exception>
#include <functional>
#include <string>

#include "app/start/launch.hpp"
#include "lockstep/liveness/heartbeat.hpp"

namespace lockstep::app {

// How one process of many ends on an error: an error that all ranks find is printed once, and the
// status is the same everywhere.

/// This process's rank, or the best guess: 0 where that cannot be known.
int likely_rank(const Launch& launch);

/// Lets rank 0 speak first. Its end ends the others, so an error that all ranks find (a missing
/// file, a typing error) is printed once. Rank 0 returns at once; the others wait for two seconds
/// (ten before the first step under mpirun), in which the launcher's SIGTERM ends them with
/// `status`. Returns true when rank 0 is known to have said `what`.
bool wait_for_turn(const Launch& launch, int status, const std::string& what = "");

/// Calls wait_for_turn(), then `say` unless rank 0 has said it, and ends all ranks, which may be
/// waiting for this one. A rank that cannot wait for its turn writes `end.why` to stderr instead.
/// Returns the status when there are no others to end.
int end_all(Launch& launch, const liveness::End& end, const std::function<void()>& say);

/// end_all() that logs an error.
int fail(Launch& launch, const liveness::End& end);
/// The same with the exception's text.
int fail(Launch& launch, const std::exception& error, int status);

}  // namespace lockstep::app
