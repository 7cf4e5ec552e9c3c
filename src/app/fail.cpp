#include "app/fail.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <fmt/core.h>

#include "app/start/quiet_end.hpp"
#include "app/status.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"

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

}  // namespace lockstep::app
