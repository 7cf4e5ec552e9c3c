#include "app/start/quiet_end.hpp"

#include <csignal>
#include <cstdlib>

#include <unistd.h>
#include <optional>

#include "app/fail.hpp"
#include "app/status.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/cluster/identity/rendezvous.hpp"
#include "lockstep/comm/worlds/tcp_control.hpp"

namespace lockstep::app {

namespace {

/// Nothing where the ranks have met already, or have no such place.
std::optional<cluster::MeetingPlace> place_of(const Launch& launch, const cluster::RankInfo& self) {
  if (launch.started || launch.world || launch.left_to_rank_0 || self.world == 1)
    return std::nullopt;
  return cluster::meeting_place(cluster::process_environment(), self);
}

}  // namespace

Rank0 meet_and_leave(const Launch& launch, const std::string& what, double within_s) {
  try {
    const cluster::RankInfo self = rank_by_environment();
    const auto place = place_of(launch, self);
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
    if (const auto place = place_of(launch, self))
      comm::turn_ranks_away(*place, self, what, within_s);
  } catch (const Error&) {
    // Then the others speak, too.
  }
}

namespace {

constexpr unsigned patience_s = 60;

volatile std::sig_atomic_t g_status = 0;
std::string g_last_words;

void give_up(int) {
  if (::write(STDERR_FILENO, g_last_words.data(), g_last_words.size()) < 0) std::_Exit(g_status);
  std::_Exit(g_status);
}

}  // namespace

bool under_mpirun() { return cluster::process_environment()("OMPI_COMM_WORLD_SIZE").has_value(); }

void join_to_end(Launch& launch, int status, const std::string& last_words) {
  if (launch.world || !under_mpirun()) return;
  g_status = status;
  g_last_words = last_words;
  std::signal(SIGALRM, give_up);
  ::alarm(patience_s);
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

}  // namespace lockstep::app
