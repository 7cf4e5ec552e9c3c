#include "app/start/launch.hpp"

#include <fmt/core.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "app/commands.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/cluster/identity/rendezvous.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/worlds/tcp_control.hpp"
#include "lockstep/observe/metrics.hpp"
#include "lockstep/train/ending/notify.hpp"

namespace lockstep::app {
namespace {

/// How long the ranks of a node that have come wait for one that has not: unpacking a container, or
/// a wrapper of each rank, takes longer than a rank that runs may be silent.
constexpr double patience_with_mates_s = 60;

/// Watches the ranks' first meeting inside MPI_Init, which has no deadline and names no missing
/// rank. Where Slurm tells each rank its identity, the ranks meanwhile also meet over TCP and start
/// their heartbeat: a rank that does not come, or leaves again, is named, and the others end.
/// Elsewhere, and where TCP or the meeting place fails, each rank ends on its own when MPI's start
/// takes longer than the deadline, and says that it waited. It uses a thread, because nothing else
/// gets a process out of MPI_Init; the thread ends before the process binds itself.
/// **Thread safety:** the main thread calls the methods; the mutex guards what it shares with the
/// watch's thread.
class StartWatch {
 public:
  StartWatch(const cluster::RankInfo& self, liveness::HeartbeatSpec spec);
  ~StartWatch();
  /// Call it when MPI has connected this rank; from then on the watch reports no missing ranks.
  /// Waits until all have met over TCP and left MPI_Init, so that none gets a message while still
  /// in there. All are in MPI's start by now: where they do not meet within 20 s, they cannot, and
  /// rank 0 warns.
  void mpi_has_started();
  /// Call it after mpi_has_started(). The heartbeat, if it runs on all ranks, else null on all.
  /// Collective.
  std::unique_ptr<liveness::Heartbeat> take_heartbeat(comm::Control& control);

 private:
  void run();
  void watch();
  void meet();
  void end(const std::string& why, bool speak);
  bool wait_for_mpi(double seconds);

  const cluster::RankInfo self_;
  const liveness::HeartbeatSpec spec_;
  const std::optional<cluster::MeetingPlace> place_;
  std::stop_source off_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool mpi_started_ = false, over_ = false;         // under the mutex, like the next
  std::unique_ptr<liveness::Heartbeat> heartbeat_;  // if the meeting succeeded
  std::unique_ptr<comm::Control> control_;          // the same; only for the thread
  std::thread thread_;
};

// Rank 0 knows more, so it speaks first.
constexpr double rank_0_speaks_s = 2;
constexpr double turn_s = 5;

// For ranks that are all there. A busy node may take seconds.
constexpr double to_meet_s = 20;

/// Call it before the thread begins: MPI's start changes the environment.
std::optional<cluster::MeetingPlace> place_of(const cluster::RankInfo& self) {
  try {
    return cluster::meeting_place(cluster::process_environment(), self);
  } catch (const InputError&) {
    return std::nullopt;  // no place to meet: this watch is optional
  }
}

StartWatch::StartWatch(const cluster::RankInfo& self, liveness::HeartbeatSpec spec)
    : self_(self), spec_(std::move(spec)), place_(place_of(self)) {
  if (self.world > 1) thread_ = std::thread([this] { run(); });
}

StartWatch::~StartWatch() {
  {
    const std::scoped_lock lock(mutex_);
    mpi_started_ = true;
  }
  changed_.notify_all();
  off_.request_stop();
  if (thread_.joinable()) thread_.join();
}

bool StartWatch::wait_for_mpi(double seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [this] { return mpi_started_; });
}

// The thread ends in any case: the meeting and the barrier after it have deadlines.
void StartWatch::mpi_has_started() {
  std::unique_lock lock(mutex_);
  mpi_started_ = true;
  changed_.notify_all();
  if (!place_ || !thread_.joinable()) return;
  const auto all_met = [this] { return over_ || heartbeat_; };
  if (!changed_.wait_for(lock, std::chrono::duration<double>(to_meet_s), all_met)) {
    off_.request_stop();
    if (self_.rank == 0)
      log::warn(
          fmt::format("the ranks could not meet over TCP by {}, which cost this start {} s: "
                      "is its directory the same on all nodes? (LOCKSTEP_RENDEZVOUS_DIR "
                      "names another)",
                      place_->file.string(), to_meet_s));
  }
  changed_.wait(lock, [this] { return over_; });
}

void StartWatch::run() {
  watch();
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
}

void StartWatch::watch() {
  const double began_s = now_s();
  meet();
  const double left_s = spec_.deadline_s - (now_s() - began_s);
  if (!wait_for_mpi(left_s + (control_ && self_.rank > 0 ? turn_s : 0)))
    return end(
        fmt::format("rank {} of {}, on {}, has waited in MPI's start for {:.0f} s: {} (start-up)",
                    self_.rank, self_.world, self_.host, spec_.deadline_s,
                    control_ ? "all ranks are there, but MPI does not connect them"
                             : "ranks that do not report this never came"),
        true);
  try {
    if (control_ && !off_.stop_requested()) control_->barrier("start of MPI");
  } catch (const Error&) {
    // The barrier is optional; the heartbeat reports missing ranks.
  }
}

/// Leaves `control_` and `heartbeat_` null where the ranks cannot meet, or the watch is off. Where
/// this rank alone gives up, `control_` stays: to the others its end would look like that of this
/// process.
void StartWatch::meet() {
  if (!place_) return;
  try {
    control_ = comm::make_tcp_control(*place_, self_,
                                      {.deadline_s = spec_.deadline_s,
                                       .mates_s = patience_with_mates_s,
                                       .stop = off_.get_token(),
                                       .by_address = true,
                                       .activity = spec_.activity});
    auto heartbeat = liveness::start_heartbeat(spec_, *control_);
    {
      const std::scoped_lock lock(mutex_);
      heartbeat_ = std::move(heartbeat);
    }
    changed_.notify_all();
  } catch (const comm::MissingRanks& missing) {
    control_.reset();  // rank 0 continues when this connection ends
    // A launcher may end rank 0 when this rank ends, and rank 0 is about to say why.
    if (missing.told) wait_for_mpi(rank_0_speaks_s);
    end(missing.what(), !missing.told && (self_.rank == 0 || self_.local_rank == 0));
  } catch (const std::exception& error) {
    // This meeting is optional: MPI's continues without it.
    if (self_.rank == 0 && !off_.stop_requested())
      log::warn(fmt::format("the ranks cannot meet over TCP: {}", error.what()));
  }
}

void StartWatch::end(const std::string& why, bool speak) {
  if (wait_for_mpi(0)) return;
  if (speak) log::error(why + "; ending");
  {
    const std::scoped_lock lock(mutex_);
    if (heartbeat_) heartbeat_->fail({spec_.lost_status, why, Ending::lost_rank});
  }
  spec_.end(spec_.lost_status);
}

std::unique_ptr<liveness::Heartbeat> StartWatch::take_heartbeat(comm::Control& control) {
  bool beats = false;
  {
    const std::scoped_lock lock(mutex_);
    beats = heartbeat_ != nullptr;
  }
  const bool everywhere = !control.any(!beats, "start of the heartbeat");
  off_.request_stop();
  if (thread_.joinable()) thread_.join();
  return everywhere ? std::move(heartbeat_) : nullptr;
}

}  // namespace

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
