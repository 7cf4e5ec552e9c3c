#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/observe/metrics.hpp"

namespace lockstep::observe {

/// A rank for which the others wait in every step.
struct Straggler {
  std::size_t rank = 0;
  comm::Phase phase = comm::Phase::data;    ///< in which it loses most
  double late_ms = 0;                       ///< a step, behind what is usual among the ranks
  double phase_ms = 0, usual_phase_ms = 0;  ///< a step, of that phase
};

/// Ranks whose own work takes longer than is usual by more than `share` of a step. `mean_times`: of
/// a step, by rank. Waiting for others is no work: a rank comes to a collective as late as its work
/// before that takes longer than the others'. Usual is the median, of an even number the lower.
std::vector<Straggler> find_stragglers(const std::vector<StepTimes>& mean_times, double share);

/// What the ranks lose by waiting for their loaders.
struct DataLimit {
  std::size_t rank = 0;             ///< that waits longest
  double wait_ms = 0, step_ms = 0;  ///< a step
  double share() const { return wait_ms / step_ms; }
};

/// Nothing when no rank waits for more than `share` of a step, and a millisecond. A batch that
/// comes late to one rank comes late to all of them: the others wait in the next collective.
std::optional<DataLimit> find_data_limit(const std::vector<StepTimes>& mean_times, double share);

/// Compares the ranks' work every so many steps, and has rank 0 say who is late, where and in what,
/// and whether data is what limits them all.
class StragglerWatch {
 public:
  /// `data`: the training set's path, for messages.
  StragglerWatch(std::string host, std::string data)
      : host_(std::move(host)), data_(std::move(data)) {}
  /// Collective, once a step; communicates once in `window` steps.
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
  std::vector<std::string> told_;  ///< rank 0's: who was late in the window before
  bool told_data_ = false;         ///< and whether data was the limit
};

}  // namespace lockstep::observe
