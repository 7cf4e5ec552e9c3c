#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/absence.hpp"
#include "lockstep/comm/activity.hpp"

namespace lockstep::liveness {

using comm::Activity;
using comm::Phase;

/// What one rank knows of the others by their heartbeats. Pure: time is what pass() adds up, so
/// that what this process spent suspended need not count.
/// **Thread safety:** none; the heartbeat's thread owns it.
class Roster {
 public:
  /// `hosts`: of each rank.
  explicit Roster(std::vector<std::string> hosts);

  void pass(double seconds);
  void heard(int rank, const Activity& activity);
  void left(int rank);   ///< it said goodbye
  void broke(int rank);  ///< its connection ended without a goodbye

  /// Ranks that were heard of and now are silent for longer than `timeout_s`, or whose connection
  /// broke. One that was never heard of is not missing: it may be that nothing gets through.
  std::vector<int> missing(double timeout_s) const;
  std::vector<int> never_heard() const;
  /// Ranks for which others have waited longer than `than_s` without anything moving: those that
  /// themselves wait for nobody; if all wait, those that wait in an earlier step than others. Empty
  /// when all wait in the same place.
  std::vector<int> late(double than_s) const;
  /// Whether some rank has waited that long, while no rank has moved.
  bool stuck(double than_s) const;

  /// Who keeps a rank waiting: those that have ended or were silent for longer than `silent_s`;
  /// else those that are late by more than `unmoved_s`. Nothing as long as a rank was never heard
  /// of: what it does is not known.
  std::optional<comm::Absence> absence(double silent_s, double unmoved_s) const;

  /// "rank 3 on node2 (silent for 20 s, last in step 12, forward), rank 4 on ..."
  std::string describe_missing(const std::vector<int>& ranks) const;
  /// "rank 3 on node2 (in step 12, data for 31 s)"
  std::string describe_late(const std::vector<int>& ranks) const;
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
  double clock_s_ = 0;
};

}  // namespace lockstep::liveness
