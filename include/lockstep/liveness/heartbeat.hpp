#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/waits/absence.hpp"

namespace lockstep::liveness {

/// How a rank ends because something failed.
struct End {
  int status = 1;
  std::string why;
  Ending ending = Ending::unknown;  ///< of the run

  static void fields(auto& self, auto&& visit) { visit(self.status, self.why, self.ending); }
};

struct HeartbeatSpec {
  std::string host;                     ///< this rank's, for messages
  double timeout_s = 20;                ///< a rank that is silent for this long is missing
  double deadline_s = 120;              ///< for a rank that is alive but keeps others waiting
  int lost_status = 1;                  ///< of a process that ends because another rank is missing
  std::function<void(int status)> end;  ///< ends this process, whatever its main thread is doing
  comm::ActivityTracker activity = {};  ///< of this rank
};

/// Tells the other ranks up to four times a second that this one is alive and what it is doing. It
/// has a separate thread and TCP connections, so nothing depends on MPI, NCCL or the main thread.
/// Every rank has one connection, to rank 0.
///
/// Ranks are missing when they were silent for the timeout (or almost, when another rank was silent
/// for all of it), or when their process ended without a goodbye. Then the other ranks end with
/// lost_status. Rank 0, or one rank of each node when rank 0 is missing, says which ranks are
/// missing, where they were and for how long, and leaves a post-mortem. Rank 0 does the same when a
/// rank keeps the others waiting for longer than the deadline and they do not notice it.
///
/// A connection that stalls is replaced, so an interruption shorter than the timeout does no harm.
/// Ranks that never connected are named in a warning, and not watched.
/// **Thread safety:** any thread may call it; the heartbeat's own thread does the work.
class Heartbeat {
 public:
  virtual ~Heartbeat() = default;  ///< says goodbye: this rank ends normally
  /// Call it when this rank ends because something failed: it names the late ranks, leaves the
  /// post-mortem and ends the other ranks with the same status, unless the launcher ends them
  /// first. Returns when that is done, after 3 s at most.
  virtual void fail(const End& end) = 0;
  /// A comm::FindAbsence from what rank 0 has heard of all ranks. Nothing when a rank was never
  /// heard from or rank 0 does not answer.
  virtual std::optional<comm::Absence> find_absence(double waited_s) = 0;
  /// From now on; before, there is no place for one.
  virtual void leave_post_mortem_in(const std::filesystem::path& directory) = 0;
};

/// Collective, on the main thread. Null in a world of one rank.
std::unique_ptr<Heartbeat> start_heartbeat(const HeartbeatSpec& spec, comm::Control& control);

}  // namespace lockstep::liveness
