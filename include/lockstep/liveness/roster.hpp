#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/absence.hpp"
#include "lockstep/comm/activity.hpp"

namespace lockstep::liveness {

using comm::Activity;
using comm::Phase;

/// What one rank knows about the others from their heartbeats. It reads no clock: pass() adds up
/// the time, so that time in which this process was suspended need not count.
/// **Thread safety:** none; only the heartbeat's thread uses it.
class Roster {
 public:
  /// `hosts`: each rank's host.
  explicit Roster(std::vector<std::string> hosts);

  void pass(double seconds);
  void heard(int rank, const Activity& activity);
  void left(int rank);   ///< it said goodbye
  void broke(int rank);  ///< its connection ended without a goodbye

  /// Ranks that were heard from and then were silent for longer than `timeout_s`, or whose
  /// connection broke. A rank that was never heard from is not missing: the network may block it.
  std::vector<int> missing(double timeout_s) const;
  std::vector<int> never_heard() const;
  /// Ranks that made no progress for longer than `than_s` while others waited: those that do not
  /// wait themselves; if all wait, those that are in an earlier step than others. Empty when all
  /// wait in the same step.
  std::vector<int> late(double than_s) const;
  /// Whether some rank has waited that long, while no rank has moved.
  bool stuck(double than_s) const;

  /// Whether every rank is present, waits for others, and has not moved for that long.
  bool all_wait(double than_s) const;

  /// The ranks that keep others waiting: those that have ended or were silent for longer than
  /// `silent_s`; else those that are late by more than `unmoved_s`. Nothing while a rank was never
  /// heard from: what it does is not known.
  std::optional<comm::Absence> absence(double silent_s, double unmoved_s) const;

  /// "rank 3 on node2 (silent for 20 s, last in step 12, forward), rank 4 on ..."
  std::string describe_missing(const std::vector<int>& ranks) const;
  /// "rank 3 on node2 (in step 12, data for 31 s)"
  std::string describe_late(const std::vector<int>& ranks) const;
  /// Nodes without which a new start should do; they become part of the post-mortem.
  void leave_out(std::vector<std::string> nodes) { leave_out_ = std::move(nodes); }
  /// The state of all ranks as JSON.
  std::string post_mortem(const std::string& reason, int told_by,
                          const std::vector<int>& missing) const;

 private:
  enum class Standing { unheard, present, left, broke };
  struct Entry {
    std::string host;
    Standing standing = Standing::unheard;
    Activity activity;
    double heard_s = 0, moved_s = 0;  ///< when, on this roster's clock
  };
  const char* name(const Entry& entry) const;

  std::vector<Entry> ranks_;
  std::vector<std::string> leave_out_;
  double clock_s_ = 0;
};

}  // namespace lockstep::liveness
