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

// Open MPI's mpirun writes paragraphs when a rank ends with a status other than 0, but
// none when MPI ends all ranks with that status.

/// Whether Open MPI's mpirun started this process.
bool under_mpirun();

/// Starts MPI on a rank that ends before Launch::start(), so that end_ranks() can follow. The other
/// ranks have the same fault, or start MPI anyway: on a busy node some seconds later. If they do
/// not come within a minute, this process ends with `status`, after `last_words` on stderr. Does
/// nothing under other launchers.
void join_to_end(Launch& launch, int status, const std::string& last_words);

/// For a command of which only rank 0 does something: true on the other ranks, which then have
/// nothing to do. Under mpirun they wait in MPI until release_ranks() on rank 0, so that an error
/// of rank 0 can end all.
bool leave_to_rank_0(Launch& launch);

/// Call it on rank 0 after a command that the others left to it: lets them end, with `status`.
void release_ranks(Launch& launch, int status);

/// Ends all ranks after a command that ended on all with this `status`, which is not 0: mpirun's
/// status is the same. Collective. Returns under other launchers.
void end_ranks(Launch& launch, int status);

/// For a rank that ends before Launch::start(), because of its command line. The other ranks may
/// have no such fault and wait for it where ranks meet. So it goes there, for at most `within_s`,
/// and leaves: they notice at once. Returns whether rank 0 has reported `what` already, has no such
/// fault, or was not found. Does nothing where the ranks have no such place.
enum class Rank0 { unknown, has_said_it, is_well };
Rank0 meet_and_leave(const Launch& launch, const std::string& what, double within_s);

/// The same for rank 0, which has reported `what`: tells the others when they come.
void tell_and_leave(const Launch& launch, const std::string& what, double within_s);

}  // namespace lockstep::app
