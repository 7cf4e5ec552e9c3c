#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "lockstep/cluster/identify.hpp"
#include "lockstep/cluster/rendezvous.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/liveness/heartbeat.hpp"

namespace lockstep::app {

/// Watches over the ranks' first meeting, inside MPI_Init, which knows no deadline and names
/// nobody. Where Slurm says who is who, the ranks also meet over TCP meanwhile and start their
/// heartbeat: whoever does not come, or goes again, is named, and the others end. Elsewhere, and
/// where TCP or the place of the meeting fails, each rank by itself ends when MPI's start takes
/// longer than the deadline, and says that it waited. A thread, because nothing else gets a process
/// out of MPI_Init; it is gone before the process binds itself.
class StartWatch {
 public:
  StartWatch(const cluster::RankInfo& self, liveness::HeartbeatSpec spec);
  ~StartWatch();
  /// MPI has connected this rank: from now on nobody is missed by this. Waits for the others, a
  /// second at most, so that none gets a message while it is still in MPI_Init.
  void mpi_has_started();
  /// Collective, behind it: the heartbeat, if it beats on all ranks, else null on all.
  std::unique_ptr<liveness::Heartbeat> take_heartbeat(comm::Control& control);

 private:
  void run();
  void meet();
  void met();
  void end(const std::string& why, bool speak);
  bool wait_for_mpi(double seconds);

  const cluster::RankInfo self_;
  const liveness::HeartbeatSpec spec_;
  const std::optional<cluster::MeetingPlace> place_;
  std::stop_source off_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool met_ = false, all_met_ = false;              // under the mutex, as the next
  std::unique_ptr<liveness::Heartbeat> heartbeat_;  // of a meeting that came about
  std::unique_ptr<comm::Control> control_;          // the same; the thread's own
  std::thread thread_;
};

}  // namespace lockstep::app
