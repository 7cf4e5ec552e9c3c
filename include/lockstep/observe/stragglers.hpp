#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/observe/metrics.hpp"

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

/// Compares the ranks' work every `window` steps. Rank 0 then logs which rank is late, on which
/// node and in which phase, and whether data limits all ranks.
/// **Thread safety:** none; the main thread uses it.
class StragglerWatch {
 public:
  /// `data`: the training set's path, for messages.
  StragglerWatch(std::string host, std::string data)
      : host_(std::move(host)), data_(std::move(data)) {}
  /// Collective, once per step; communicates every `window` steps.
  void add(const StepTimes& times, comm::Control& control);

 private:
  static constexpr std::size_t window = 50;
  static constexpr double share = 0.2, data_share = 0.1;
  void compare(comm::Control& control);
  void tell_late(const std::vector<StepTimes>& ranks, const std::vector<std::string>& names);
  void tell_data(const std::vector<StepTimes>& ranks, const std::vector<std::string>& names);

  std::string host_, data_;
  StepTimes sum_;
  std::size_t steps_ = 0;
  std::vector<std::string> told_;  ///< on rank 0: the ranks that were late in the last window
  bool told_data_ = false;         ///< on rank 0: data was the limit in the last window
};

}  // namespace lockstep::observe
