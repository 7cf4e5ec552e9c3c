#include "app/fail.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <thread>

#include <unistd.h>

#include <fmt/core.h>

#include "app/commands.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/identity/rendezvous.hpp"
#include "lockstep/comm/worlds/tcp_control.hpp"

namespace lockstep::app {
namespace {

constexpr double turn_s = 2, turn_at_the_start_s = 10;
// For ranks of one step to find each other: a busy node starts them seconds apart.
constexpr double meet_s = 5;

volatile std::sig_atomic_t g_status = status_failed;

/// How long rank 0 may take to find the fault that this rank has found. At the start all ranks do
/// the same, but on a busy node not at the same time. Another launcher than mpirun would let the
/// others wait for this rank.
double patience(const Launch& launch) {
  const bool starting = launch.activity.now().phase == comm::Phase::start_up;
  return launch.world && under_mpirun() && starting ? turn_at_the_start_s : turn_s;
}

constexpr unsigned mpi_patience_s = 60;

std::string g_last_words;

void give_up(int) {
  if (::write(STDERR_FILENO, g_last_words.data(), g_last_words.size()) < 0) std::_Exit(g_status);
  std::_Exit(g_status);
}

/// Nothing where the ranks have met already, or have no such place.
std::optional<cluster::MeetingPlace> meeting_place_of(const Launch& launch,
                                                      const cluster::RankInfo& self) {
  if (launch.started || launch.world || launch.left_to_rank_0 || self.world == 1)
    return std::nullopt;
  return cluster::meeting_place(cluster::process_environment(), self);
}

}  // namespace

int likely_rank(const Launch& launch) {
  return launch.rank.world > 1 ? launch.rank.rank : rank_by_environment().rank;
}

bool wait_for_turn(const Launch& launch, int status, const std::string& what) {
  if (likely_rank(launch) == 0) return false;
  g_status = status;
  // A launcher sends SIGTERM about a second after the end of rank 0. srun returns the highest
  // status of all ranks, so all must be the same.
  std::signal(SIGTERM, [](int) { std::_Exit(g_status); });
  const double end_s = now_s() + patience(launch);
  const Rank0 rank_0 = what.empty() ? Rank0::unknown : meet_and_leave(launch, what, meet_s);
  if (rank_0 != Rank0::unknown) return rank_0 == Rank0::has_said_it;
  std::this_thread::sleep_for(std::chrono::duration<double>(end_s - now_s()));
  return false;
}

int end_all(Launch& launch, const liveness::End& end, const std::function<void()>& say) {
  const int status = end.status;
  const std::string& what = end.why;
  if (launch.independent) return say(), status;
  // Rank 0 speaks first; the others may speak only in its absence.
  if (likely_rank(launch) != 0)
    join_to_end(launch, status, fmt::format("error: {}\n", one_line(what)));
  if (!wait_for_turn(launch, status, what)) say();
  join_to_end(launch, status, "");
  if (likely_rank(launch) == 0) tell_and_leave(launch, what, meet_s);
  if (launch.heartbeat) launch.heartbeat->fail(end);
  if (launch.world && (launch.world->facts().world > 1 || under_mpirun()))
    comm::World::abort(status);
  return status;
}

int fail(Launch& launch, const liveness::End& end) {
  return end_all(launch, end, [&] { log::error(end.why); });
}

int fail(Launch& launch, const std::exception& error, int status) {
  return fail(launch, {status, error.what(), ending_of(error)});
}

bool under_mpirun() { return cluster::process_environment()("OMPI_COMM_WORLD_SIZE").has_value(); }

void join_to_end(Launch& launch, int status, const std::string& last_words) {
  if (launch.world || !under_mpirun()) return;
  g_status = status;
  g_last_words = last_words;
  std::signal(SIGALRM, give_up);
  ::alarm(mpi_patience_s);
  try {
    launch.world = std::make_unique<comm::World>(launch.argc, launch.argv);
  } catch (const Error&) {
    // Then mpirun says what it says.
  }
  ::alarm(0);
}

bool leave_to_rank_0(Launch& launch) {
  launch.left_to_rank_0 = true;
  if (rank_by_environment().rank == 0) return false;
  if (!under_mpirun()) return true;
  try {
    launch.world = std::make_unique<comm::World>(launch.argc, launch.argv);
    launch.world->meet();  // not in MPI_Finalize: rank 0 may end all ranks
  } catch (const Error&) {
    // Rank 0 says what is wrong, or mpirun does.
  }
  return true;
}

void release_ranks(Launch& launch, int status) {
  if (!launch.left_to_rank_0 || rank_by_environment().rank != 0) return;
  join_to_end(launch, status, "");
  if (!launch.world) return;
  if (status != status_done) comm::World::abort(status);
  launch.world->meet();
}

void end_ranks(Launch& launch, int status) {
  if (!launch.world || !launch.control || !under_mpirun()) return;
  launch.control->barrier("the end");
  launch.heartbeat.reset();  // says goodbye, so that no rank is missed
  wait_for_turn(launch, status);
  comm::World::abort(status);
}

Rank0 meet_and_leave(const Launch& launch, const std::string& what, double within_s) {
  try {
    const cluster::RankInfo self = rank_by_environment();
    const auto place = meeting_place_of(launch, self);
    if (!place) return Rank0::unknown;
    comm::make_tcp_control(*place, self, {.deadline_s = within_s});
    return Rank0::is_well;
  } catch (const comm::MissingRanks& missing) {
    if (missing.told && missing.what() == comm::ended_text(what)) return Rank0::has_said_it;
  } catch (const Error&) {
    // No one came: all have the same fault, or have not started yet.
  }
  return Rank0::unknown;
}

void tell_and_leave(const Launch& launch, const std::string& what, double within_s) {
  try {
    const cluster::RankInfo self = rank_by_environment();
    if (const auto place = meeting_place_of(launch, self))
      comm::turn_ranks_away(*place, self, what, within_s);
  } catch (const Error&) {
    // Then the others speak, too.
  }
}

}  // namespace lockstep::app
