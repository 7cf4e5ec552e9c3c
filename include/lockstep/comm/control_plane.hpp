#pragma once

#include <memory>

#include "lockstep/comm/fabric.hpp"

namespace lockstep::comm {

/// How a rank agrees with the others, and how it finds out who is missing when a wait for them does
/// not end: one for each rank, whatever carries its tensors.
///
/// A wait whose deadline has passed asks the heartbeats first, which mostly know. If they do not
/// (none is running, they find no rank late), it asks the ranks that it waits for, those that they
/// wait for, and so on. Those that also wait, for the same or for anything else, answer during
/// their wait; a rank that does not answer is busy with something else, hung or gone. All ranks
/// that answered get the finding, so they end at once and with the same message. When all answer,
/// it looks two seconds longer: a late rank may have come just then. Where all ranks answer and
/// still nothing comes, or the heartbeats say that one waits for a file system, the finding is an
/// OutsideFault. A rank whose connection has ended is left to the heartbeats for some seconds,
/// which know more and end this process; else the finding is MissingRanks.
/// **Thread safety:** as of its fabric.
class ControlPlane {
 public:
  /// A world of one rank.
  explicit ControlPlane(const ActivityTracker& activity = {});
  /// `deadline_s`: of Control's calls.
  ControlPlane(std::shared_ptr<Fabric> fabric, double deadline_s,
               const ActivityTracker& activity = {});
  ~ControlPlane();
  Control& control();
  /// Collective: from now on any two ranks can connect.
  void introduce();
  /// A wait whose deadline has passed will call this first, before it asks the ranks.
  void ask_first(FindAbsence find_absence);
  FindAbsence find_absence() const;  ///< what it calls; may be empty
  /// Collectives over a transport of `tensors`, or of this plane's own fabric. Collective.
  std::unique_ptr<Communicator> connect(double deadline_s, Fabric* tensors = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::comm
