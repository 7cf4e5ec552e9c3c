#pragma once

// Why two deadlines. --liveness.timeout-s is about silence: is the process there? --comm.deadline-s
// is about progress: does a wait between ranks end?

#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/waits/absence.hpp"
#include "lockstep/liveness/process_state.hpp"

namespace lockstep::liveness {

using comm::Activity;
using comm::Phase;

/// What one rank knows about the others from their heartbeats. It reads no clock: pass() adds up
/// the time, so that time in which this process was suspended need not count.
///
/// What a node did not let a rank send is not silence. When one rank's heartbeat got no core, this
/// time does not count for the other ranks of its node, of which nothing was heard in it; and a
/// rank whose heartbeat got no core within the last minute may be silent for that long in addition.
/// Both together are at most the timeout again, so a rank that is lost on an overloaded node is
/// still missed.
/// **Thread safety:** none; only the heartbeat's thread uses it.
class Roster {
 public:
  /// `hosts`: each rank's host.
  explicit Roster(std::vector<std::string> hosts);

  void pass(double seconds);
  void heard(int rank, const Activity& activity);
  void left(int rank);   ///< it said goodbye
  void broke(int rank);  ///< its connection ended without a goodbye
  /// Its heartbeat says that until now it got no core for that long. Call it before heard().
  void starved(int rank, double seconds);
  void seen(int rank, Trouble trouble);  ///< of its process, as of trouble_of(); until it beats

  /// Ranks that were heard from and then were silent for longer than `timeout_s`, or whose
  /// connection broke. A rank that was never heard from is not missing: the network may block it.
  std::vector<int> missing(double timeout_s) const;
  std::vector<int> never_heard() const;
  /// The rank of the same node that was heard of last, if one was within `recent_s`.
  std::optional<int> neighbour(int rank, double recent_s) const;
  /// Ranks that made no progress for longer than `than_s` while others waited: those that do not
  /// wait themselves; if all wait, those that are in an earlier step than others. Empty when all
  /// wait in the same step.
  std::vector<int> late(double than_s) const;
  /// Ranks in an earlier step than others that came to it within the last `within_s`: with an exact
  /// exchange there are none for long.
  std::vector<int> nearer(double within_s) const;
  /// Whether some rank has waited that long, while no rank has moved.
  bool stuck(double than_s) const;

  /// Whether every rank is present, waits for others, and has not moved for that long.
  bool all_wait(double than_s) const;

  /// The ranks that keep others waiting: those that have ended or were silent for longer than
  /// `silent_s`; else those that are late by more than `unmoved_s`; else none, where one comes
  /// nearer, or the network is to blame. Nothing while a rank was never
  /// heard from: what it does is not known.
  std::optional<comm::Absence> absence(double silent_s, double unmoved_s) const;

  /// "rank 3 on node2 (silent for 20 s, last in step 12, forward), rank 4 on ..."
  std::string describe_missing(const std::vector<int>& ranks) const;
  /// "rank 3 on node2 (in step 12, data for 31 s)"
  std::string describe_late(const std::vector<int>& ranks) const;

  enum class Standing { unheard, present, left, broke };
  struct Entry {
    std::string host;
    Standing standing = Standing::unheard;
    Activity activity;
    double heard_s = 0, moved_s = 0;         ///< when, on this roster's clock
    double stepped_s = 0;                    ///< when it was first heard of in its current step
    double excused_s = 0, excused_to_s = 0;  ///< since it was heard: how much, and until when
    double starved_s = 0, starved_to_s = 0;  ///< the longest time without a core; when it ended
    Trouble trouble;
  };
  const std::vector<Entry>& ranks() const { return ranks_; }
  double clock_s() const { return clock_s_; }

 private:
  double excuse_s(const Entry& entry, double timeout_s) const;
  std::string node_state(const Entry& entry) const;

  std::vector<Entry> ranks_;
  double clock_s_ = 0;
};

}  // namespace lockstep::liveness
