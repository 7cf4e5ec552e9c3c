#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/control.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/observe/stragglers.hpp"

namespace lockstep::observe {

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
