#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/observe/records.hpp"

namespace lockstep::observe {

/// A rank that makes the others wait in every step.
struct Straggler {
  std::size_t rank = 0;
  comm::Phase phase = comm::Phase::data;    ///< where it loses most
  double late_ms = 0;                       ///< per step, compared with the usual rank
  double phase_ms = 0, usual_phase_ms = 0;  ///< per step, of that phase
};

/// Finds ranks whose own work takes longer than usual, by more than `share` of a step.
/// `mean_times`: mean times of a step, by rank. Waiting for others is not work: a rank is late for
/// a collective by the extra time of its work before it. Usual is the median; of an even
/// number, the lower one.
std::vector<Straggler> find_stragglers(const std::vector<StepTimes>& mean_times, double share);

/// How long the ranks wait for their loaders.
struct DataLimit {
  std::size_t rank = 0;             ///< the one that waits longest
  double wait_ms = 0, step_ms = 0;  ///< per step
  double share() const { return wait_ms / step_ms; }
};

/// Empty unless some rank waits for more than `share` of a step, and more than a millisecond. A
/// batch that is late on one rank delays all of them: the others wait in the next collective.
std::optional<DataLimit> find_data_limit(const std::vector<StepTimes>& mean_times, double share);

/// Judges the ranks' work, window by window, and warns which rank is late, on which node and in
/// which phase, and whether data limits all ranks. What lasts is said once: a rank that comes and
/// goes at the limit is named again only after some windows in which it was on time. Only rank 0
/// has one.
/// **Thread safety:** none; the main thread uses it.
class StragglerWatch {
 public:
  /// `ranks`: how each is called in messages, "rank 3 on n1". `data`: the training set's path.
  StragglerWatch(std::vector<std::string> ranks, std::string data)
      : names_(std::move(ranks)), data_(std::move(data)) {}
  /// `mean_times`: of a window of `steps` steps, by rank.
  void judge(const std::vector<StepTimes>& mean_times, std::uint64_t steps);

 private:
  static constexpr double share = 0.2, data_share = 0.1;
  void tell_late(const std::vector<StepTimes>& ranks, std::uint64_t steps);
  void tell_data(const std::vector<StepTimes>& ranks, std::uint64_t steps);

  std::vector<std::string> names_;
  std::string data_;
  std::map<std::string, int> told_;  ///< ranks that were late, and windows until they are forgotten
  bool told_data_ = false;           ///< data was the limit in the last window
};

/// How every rank spends its steps. Each rank adds up its own times; rank 0 gathers the
/// sums after the first step, then every `window` steps, and at the end of an epoch, so that a step
/// costs no traffic. From them it judges stragglers and makes the epoch's record.
/// **Thread safety:** none; the main thread uses it.
class RankTimes {
 public:
  /// `data`: the training set's path, for messages.
  RankTimes(const comm::Nodes& nodes, const std::string& data);
  /// Collective, once per step.
  void add(const StepTimes& times, comm::Control& control);
  /// Collective, at the end of an epoch, or of the run within it. On rank 0 the record without
  /// epoch and step; empty on the others, and when no step was added since the last call.
  std::optional<RanksRecord> end_epoch(comm::Control& control);

 private:
  static constexpr std::uint64_t window = 50;
  struct Sums {
    std::vector<StepTimes> ranks;
    std::uint64_t steps = 0;
    void add(const std::vector<StepTimes>& more, std::uint64_t more_steps);
  };
  void gather(comm::Control& control);

  StepTimes mine_;                     ///< since the last gather
  std::uint64_t steps_ = 0;            ///< in it
  std::uint64_t steps_of_window_ = 0;  ///< since the last judgement
  std::uint64_t steps_of_epoch_ = 0;
  bool first_ = true;          ///< the first step is not typical: no straggler by it
  Sums window_, epoch_;        ///< on rank 0: what it gathered
  StragglerWatch stragglers_;  ///< used on rank 0
};

}  // namespace lockstep::observe
