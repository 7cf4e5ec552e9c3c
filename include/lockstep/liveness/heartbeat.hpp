#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/comm/absence.hpp"
#include "lockstep/comm/control.hpp"

namespace lockstep::liveness {

struct HeartbeatSpec {
  std::string host;         ///< this rank's, for messages
  double timeout_s = 20;    ///< of silence, after which a rank is missing
  double deadline_s = 120;  ///< for a rank that is alive but for which others wait in vain
  int lost_status = 1;      ///< of a process that ends because another rank is missing
  std::function<void(int status)> end;  ///< ends this process, whatever its main thread is in
};

/// Tells the other ranks up to four times a second that this one lives and what it is at
/// (comm::activity), on a thread and over TCP connections of its own, so that nothing depends on
/// MPI, NCCL or the main thread: every rank has one connection, to rank 0. When ranks are missing
/// (silent for the timeout, or nearly so beside another one that is, or their process has ended
/// without a goodbye), those that remain end with lost_status; rank 0, or one rank of each node
/// when rank 0 is missing, says which, where they were and for how long, and leaves a post-mortem
/// in activity::directory(). So does rank 0 when a rank keeps the others waiting for longer than
/// the deadline and they did not notice themselves. A connection that stalls is made anew, so that
/// a cut shorter than the timeout does no harm. Ranks that never got through are named in a
/// warning, and not watched.
/// **Thread safety:** any thread may call; the heartbeat's own thread does the work.
class Heartbeat {
 public:
  virtual ~Heartbeat() = default;  ///< says goodbye: this rank ends as it should
  /// To be called by a rank that ends because something failed: names the late ranks, leaves the
  /// post-mortem and ends the other ranks, with the same status, if nobody else does. Returns when
  /// that is done, after 3 s at most.
  virtual void fail(const std::string& why, int status) = 0;
  /// A comm::FindAbsence by what rank 0 has heard of all ranks. Nothing when a rank was never heard
  /// of or rank 0 does not answer.
  virtual std::optional<comm::Absence> find_absence(double waited_s) = 0;
};

/// Collective, on the main thread. Null for a rank that is alone.
std::unique_ptr<Heartbeat> start_heartbeat(const HeartbeatSpec& spec, comm::Control& control);

}  // namespace lockstep::liveness
