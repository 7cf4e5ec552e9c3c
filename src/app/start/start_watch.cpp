#include "app/start/start_watch.hpp"

#include <fmt/core.h>

#include <chrono>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/worlds/tcp_control.hpp"

namespace lockstep::app {
namespace {

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

}  // namespace

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

}  // namespace lockstep::app
