#include <chrono>
#include <cstdlib>
#include <thread>

#include "app/commands.hpp"
#include "app/start/launch.hpp"
#include "app/start/start_watch.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/worlds/mpi_library.hpp"
#include "lockstep/comm/worlds/tcp_control.hpp"
#include "lockstep/observe/metrics.hpp"
#include "lockstep/train/ending/notify.hpp"

namespace lockstep::app {

void Launch::start(double deadline_s) {
  started = true;
  const cluster::EnvLookup env = cluster::process_environment();
  rank = cluster::identify(env, std::nullopt);
  if (!cluster::launched(env)) return be_alone();
  if (const auto doubt = cluster::doubt_launch(env, comm::mpi_library(), cluster::srun_mpi_types)) {
    if (doubt->certain && !meet_without_mpi(deadline_s)) throw cluster::LaunchError(doubt->text);
    if (rank.rank == 0)
      log::warn(control ? "the ranks communicate over TCP: " + doubt->text : doubt->text);
    if (control) return;
  }
  StartWatch watch(rank, heartbeat_spec(deadline_s));
  world = std::make_unique<comm::World>(argc, argv, [&watch] { watch.mpi_has_started(); });
  control = world->make_control(deadline_s, activity);
  nodes = comm::gather_nodes(*control, comm::place_of_process(rank.host));
  rank = cluster::identify(env, mpi_world(), cluster::srun_mpi_types);
  log::set_rank(rank.rank, rank.world);
  heartbeat = watch.take_heartbeat(*control);
  if (!heartbeat) heartbeat = liveness::start_heartbeat(heartbeat_spec(deadline_s), *control);
  world->ask_first(find_absence());
}

void Launch::be_alone() {
  log::set_rank(rank.rank, rank.world);
  control = std::make_unique<comm::LoneControl>(activity);
  nodes = comm::gather_nodes(*control, comm::place_of_process(rank.host));
}

cluster::MpiWorld Launch::mpi_world() const {
  const comm::WorldFacts& facts = world->facts();
  return {.rank = facts.rank,
          .world = facts.world,
          .local_rank = static_cast<int>(nodes.local_index(facts.rank)),
          .local_size = static_cast<int>(nodes.local_size(facts.rank)),
          .machine_size = static_cast<int>(nodes.ranks_on_machine_of(facts.rank).size())};
}

void Launch::stay_independent() {
  independent = true;
  rank = cluster::identify(cluster::process_environment(), std::nullopt);
  log::set_rank(rank.rank, rank.world);
}

bool Launch::meet_without_mpi(double deadline_s) {
  const cluster::EnvLookup env = cluster::process_environment();
  rank = cluster::identify(env, std::nullopt);
  const auto place = cluster::meeting_place(env, rank);
  if (!place) return false;
  log::set_rank(rank.rank, rank.world);
  // The heartbeat tells which rank was lost first, and ends this process.
  const auto wait_for_heartbeat = [this] {
    if (heartbeat)
      std::this_thread::sleep_for(std::chrono::duration<double>(comm::time_for_heartbeat_s));
  };
  const auto ask_heartbeat = [this](double waited_s) {
    return heartbeat ? heartbeat->find_absence(waited_s) : std::nullopt;
  };
  control = comm::make_tcp_control(*place, rank,
                                   {.deadline_s = deadline_s,
                                    .mates_s = patience_with_mates_s,
                                    .rank_gone = wait_for_heartbeat,
                                    .find_absence = ask_heartbeat,
                                    .activity = activity});
  heartbeat = liveness::start_heartbeat(heartbeat_spec(deadline_s), *control);
  nodes = comm::gather_nodes(*control, comm::place_of_process(rank.host));
  return true;
}

comm::FindAbsence Launch::find_absence() const {
  if (!heartbeat) return {};
  return [beating = heartbeat.get()](double waited_s) { return beating->find_absence(waited_s); };
}

cluster::RankInfo rank_by_environment() {
  try {
    return cluster::identify(cluster::process_environment(), std::nullopt);
  } catch (const InputError&) {
    return {};  // a command that needs the launcher reports the reason
  }
}

liveness::HeartbeatSpec Launch::heartbeat_spec(double deadline_s) const {
  const auto end = [](int status) {
    const bool lost = status == status_lost_rank;
    const char* reason = lost ? "another rank was lost: see post-mortem.json"
                              : "another rank failed: see post-mortem.json";
    observe::end_metrics({.status = "failed",
                          .reason = reason,
                          .ending = lost ? Ending::lost_rank : Ending::unknown});
    train::give_notice(train::short_notice_s, "failed", reason);
    std::_Exit(status);
  };
  return {rank.host, silence_s, deadline_s, status_lost_rank, end, activity};
}

}  // namespace lockstep::app
