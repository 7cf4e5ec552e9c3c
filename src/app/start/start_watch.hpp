#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/cluster/identity/rendezvous.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/liveness/heartbeat.hpp"

namespace lockstep::app {

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

}  // namespace lockstep::app
