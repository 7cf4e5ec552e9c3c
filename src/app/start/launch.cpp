#include "app/start/launch.hpp"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "app/commands.hpp"
#include "app/start/end.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/worlds/tcp.hpp"

namespace lockstep::app {
namespace {

/// How long the ranks of a node that have come wait for one that has not: unpacking a container, or
/// a wrapper of each rank, takes longer than a rank that runs may be silent.
constexpr double patience_with_mates_s = 60;

/// What lets ranks agree, and watches them.
struct Plane {
  std::unique_ptr<comm::ControlPlane> plane;
  std::unique_ptr<liveness::Heartbeat> heartbeat;

  /// Collective, when the ranks have met.
  void begin(std::unique_ptr<comm::Fabric> fabric, const liveness::HeartbeatSpec& spec) {
    plane = std::make_unique<comm::ControlPlane>(std::move(fabric), spec.deadline_s, spec.activity);
    plane->introduce();
    watch(spec);
  }
  void watch(const liveness::HeartbeatSpec& spec) {
    heartbeat = liveness::start_heartbeat(spec, plane->control());
    if (heartbeat)
      plane->ask_first(
          [beating = heartbeat.get()](double waited_s) { return beating->find_absence(waited_s); });
  }
};

/// Lets the ranks meet while they are inside MPI_Init, which has no deadline and names no missing
/// rank. Where Slurm tells each rank its identity, they meet over TCP and start their heartbeat: a
/// rank that does not come, or leaves again, is named, and the others end. Elsewhere, and where TCP
/// or the meeting place fails, each rank ends on its own when MPI's start takes longer than the
/// deadline, and says that it waited. It uses a thread, because nothing else gets a process out of
/// MPI_Init; the thread ends before the process binds itself.
/// **Thread safety:** the main thread calls the methods; the mutex guards what it shares with the
/// watch's thread.
class StartWatch {
 public:
  StartWatch(const cluster::RankInfo& self, std::optional<cluster::MeetingPlace> place,
             liveness::HeartbeatSpec spec);
  ~StartWatch();
  /// Call it when MPI has connected this rank; from then on the watch reports no missing ranks.
  /// Waits until all have met over TCP and left MPI_Init, so that none gets a message while still
  /// in there. All are in MPI's start by now: where they do not meet within 20 s, they cannot, and
  /// rank 0 warns.
  void mpi_has_started();
  /// Call it after mpi_has_started(). What this rank has met by, if it did; ends the thread.
  Plane take();

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
  bool mpi_started_ = false, met_ = false, over_ = false;  // under the mutex
  Plane plane_;                                            // only for the thread until it ends
  std::thread thread_;
};

// Rank 0 knows more, so it speaks first.
constexpr double rank_0_speaks_s = 2, others_speak_s = 5;

// For ranks that are all there. A busy node may take seconds.
constexpr double to_meet_s = 20;

// After a rank was silent for too long: the post-mortem may wait for the disk.
constexpr double to_report_s = 10;

StartWatch::StartWatch(const cluster::RankInfo& self, std::optional<cluster::MeetingPlace> place,
                       liveness::HeartbeatSpec spec)
    : self_(self), spec_(std::move(spec)), place_(std::move(place)) {
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
  const auto all_met = [this] { return over_ || met_; };
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
  if (!wait_for_mpi(left_s + (plane_.plane && self_.rank > 0 ? others_speak_s : 0)))
    return end(
        fmt::format("rank {} of {}, on {}, has waited in MPI's start for {:.0f} s: {} (start-up)",
                    self_.rank, self_.world, self_.host, spec_.deadline_s,
                    plane_.plane ? "all ranks are there, but MPI does not connect them"
                                 : "ranks that do not report this never came"),
        true);
  try {
    if (plane_.plane && !off_.stop_requested()) plane_.plane->control().barrier("start of MPI");
  } catch (const Error&) {
    // The barrier is optional; the heartbeat reports missing ranks.
  }
}

/// Leaves `met_` false where the ranks cannot meet, or the watch is off. Where this rank alone
/// gives up, `plane_` stays: to the others its end would look like that of this process.
void StartWatch::meet() {
  if (!place_) return;
  try {
    plane_.begin(comm::meet_over_tcp(*place_, self_,
                                     {.deadline_s = spec_.deadline_s,
                                      .mates_s = patience_with_mates_s,
                                      .stop = off_.get_token(),
                                      .by_address = true}),
                 spec_);
    {
      const std::scoped_lock lock(mutex_);
      met_ = true;
    }
    changed_.notify_all();
  } catch (const comm::MissingRanks& missing) {
    plane_ = {};  // rank 0 continues when this connection ends
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
  if (plane_.heartbeat) plane_.heartbeat->fail({spec_.lost_status, why, Ending::lost_rank});
  spec_.end(spec_.lost_status);
}

Plane StartWatch::take() {
  off_.request_stop();
  if (thread_.joinable()) thread_.join();
  return met_ ? std::move(plane_) : Plane();
}

/// Call it before MPI starts, which changes the environment.
std::optional<cluster::MeetingPlace> place_of(const cluster::RankInfo& self, bool needed) {
  try {
    return cluster::meeting_place(cluster::process_environment(), self);
  } catch (const InputError&) {
    if (needed) throw;
    return std::nullopt;
  }
}

liveness::HeartbeatSpec heartbeat_spec(const Launch& launch, double deadline_s) {
  return {launch.rank.host, launch.silence_s,         deadline_s,
          status_lost_rank, &RankEnd::nobody_answers, launch.activity};
}

/// MPI's numbers of a rank, and what its node has of the ranks that have met.
cluster::MpiWorld mpi_world(const Launch& launch) {
  const comm::WorldFacts& facts = launch.world->facts();
  if (facts.world != launch.control->world()) return {.rank = facts.rank, .world = facts.world};
  return {.rank = facts.rank,
          .world = facts.world,
          .local_rank = static_cast<int>(launch.nodes.local_index(facts.rank)),
          .local_size = static_cast<int>(launch.nodes.local_size(facts.rank)),
          .machine_size = static_cast<int>(launch.nodes.ranks_on_machine_of(facts.rank).size())};
}

/// Starts MPI. The ranks that have not met before tell each other over MPI where they listen.
Plane meet_with_mpi(Launch& launch, const std::optional<cluster::MeetingPlace>& place,
                    const liveness::HeartbeatSpec& spec) {
  StartWatch watch(launch.rank, place, spec);
  launch.world = std::make_unique<comm::World>(launch.argc, launch.argv,
                                               [&watch] { watch.mpi_has_started(); });
  launch.world->report_lost_ranks_within(spec.timeout_s + to_report_s);
  launch.tensors = launch.world->make_fabric(spec.deadline_s);
  auto over_mpi =
      std::make_unique<comm::ControlPlane>(launch.tensors, spec.deadline_s, spec.activity);
  Plane met = watch.take();
  if (!over_mpi->control().any(!met.plane, "start-up")) return met;
  met = {};
  auto fabric = launch.tensors->world() == 1
                    ? nullptr
                    : comm::meet_over_tcp(*launch.tensors, over_mpi->control(), launch.rank.host);
  if (fabric) {
    met.begin(std::move(fabric), spec);
  } else {
    met.plane = std::move(over_mpi);
    met.watch(spec);
  }
  return met;
}

}  // namespace

// The order of a start: who this process should be, whether the launcher can join it to the others,
// the ranks' meeting (while MPI starts), where they run, and who they are.
void Launch::start(double deadline_s) {
  kind = Kind::joined;
  const cluster::EnvLookup env = cluster::process_environment();
  rank = cluster::identify(env, std::nullopt);
  const liveness::HeartbeatSpec spec = heartbeat_spec(*this, deadline_s);
  Plane met;
  const cluster::MpiLibrary library = comm::mpi_library();
  if (!cluster::launched(env) || (library.is_none && rank.world == 1)) {
    met.plane = std::make_unique<comm::ControlPlane>(activity);
  } else {
    const bool by_address = cluster::meets_by_address(env, rank);
    const auto doubt =
        by_address ? std::nullopt : cluster::doubt_launch(env, library, cluster::srun_mpi_types);
    const bool without_mpi = by_address || (doubt && doubt->certain);
    const auto place = place_of(rank, without_mpi);
    if (without_mpi && !place) throw cluster::LaunchError(doubt->text);
    if (without_mpi) {
      log::set_rank(rank.rank, rank.world);
      if (by_address && rank.rank == 0 && !place->address->note.empty())
        log::info(place->address->note);
      met.begin(comm::meet_over_tcp(*place, rank,
                                    {.deadline_s = deadline_s, .mates_s = patience_with_mates_s}),
                spec);
    }
    if (doubt && rank.rank == 0 && !library.is_none)
      log::warn(without_mpi ? "the ranks communicate over TCP: " + doubt->text : doubt->text);
    if (!without_mpi) met = meet_with_mpi(*this, place, spec);
  }
  plane = std::move(met.plane);
  heartbeat = std::move(met.heartbeat);
  control = &plane->control();
  nodes = comm::gather_nodes(*control, comm::place_of_process(rank.host));
  if (world) rank = cluster::identify(env, mpi_world(*this), cluster::srun_mpi_types);
  if (!world && rank.local_size == 1) {  // of a launcher that counts no ranks of a node
    rank.local_rank = static_cast<int>(nodes.local_index(rank.rank));
    rank.local_size = static_cast<int>(nodes.local_size(rank.rank));
  }
  log::set_rank(rank.rank, rank.world);
}

void Launch::stay_independent() {
  kind = Kind::independent;
  rank = cluster::identify(cluster::process_environment(), std::nullopt);
  log::set_rank(rank.rank, rank.world);
}

bool Launch::leave_to_rank_0() {
  kind = Kind::left_to_rank_0;
  if (rank_by_environment().rank == 0) return false;
  if (!RankEnd::under_mpirun()) return true;
  try {
    world = std::make_unique<comm::World>(argc, argv);
    world->meet();  // not in MPI_Finalize: rank 0 may end all ranks
  } catch (const Error&) {
    // Rank 0 says what is wrong, or mpirun does.
  }
  return true;
}

std::optional<cluster::MeetingPlace> Launch::meeting_place() const {
  const cluster::RankInfo self = rank_by_environment();
  if (kind != Kind::not_started || self.world == 1) return std::nullopt;
  return cluster::meeting_place(cluster::process_environment(), self);
}

void require_no_ranks(const std::string& command) {
  require(rank_by_environment().world <= 1,
          command + " starts ranks itself: start it once, without srun or mpirun");
}

cluster::RankInfo rank_by_environment() {
  try {
    return cluster::identify(cluster::process_environment(), std::nullopt);
  } catch (const InputError&) {
    return {};  // a command that needs the launcher reports the reason
  }
}

}  // namespace lockstep::app
