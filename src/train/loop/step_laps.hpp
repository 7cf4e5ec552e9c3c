#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/device/device.hpp"
#include "lockstep/observe/records.hpp"

namespace lockstep::train {

/// How one step used the device's time.
struct StepLap {
  observe::StepTimes times;
  /// From the end of the step before it; empty for the first one since times were taken.
  std::optional<double> idle_ms = std::nullopt;
};

/// How the newest steps used the device's time. **Thread safety:** none.
class StepLaps {
 public:
  using Time = double observe::StepTimes::*;
  explicit StepLaps(device::Device& device) : device_(device), timeline_(device.make_timeline()) {}
  void begin();         ///< a step begins here
  void end(Time time);  ///< a lap ends here: the device's time since the mark before
  /// That much of one of this step's times was another.
  void move(Time from, Time to, double ms) { steps_.back().moves.push_back({from, to, ms}); }
  /// Runs `work` by the repeater, as one lap. It is divided among the laps that `work` ended, as
  /// they were in the newest run of this work: the device keeps only those. True as
  /// Repeater::run().
  bool repeat(device::Repeater& repeater, std::uint64_t key, const std::function<void()>& work);
  /// Waits for the device. The times of all steps since the last call, in order, and forgets them.
  std::vector<StepLap> take();

 private:
  /// Work that a repeater runs: its own marks, and the laps between them.
  struct Work {
    std::unique_ptr<device::Timeline> timeline;
    std::vector<Time> laps;
  };
  struct Lap {
    Time time = nullptr;
    const Work* work = nullptr;  ///< whose laps share this one
  };
  struct Move {
    Time from, to;
    double ms;
  };
  struct Step {
    std::vector<Lap> laps;
    std::vector<Move> moves;
  };
  static void share_out(double ms, const Work& work, observe::StepTimes& times);

  device::Device& device_;
  std::unique_ptr<device::Timeline> timeline_;
  std::vector<Step> steps_;
  std::map<std::uint64_t, Work> works_;  ///< by key
  Work* running_ = nullptr;              ///< the work that is called now
};

}  // namespace lockstep::train
