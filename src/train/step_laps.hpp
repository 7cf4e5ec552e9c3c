#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "lockstep/device/device.hpp"
#include "lockstep/observe/records.hpp"

namespace lockstep::train {

/// How the newest step used the device's time. **Thread safety:** none.
class StepLaps {
 public:
  using Time = double observe::StepTimes::*;
  explicit StepLaps(device::Device& device) : timeline_(device.make_timeline()) {}
  void begin();         ///< a step begins here; forgets the one before
  void end(Time time);  ///< a lap ends here: the device's time since the mark before
  /// Runs `work` by the repeater. The laps that it ended when it was recorded are those of each
  /// later run. True as Repeater::run().
  bool repeat(device::Repeater& repeater, std::uint64_t key, const std::function<void()>& work);
  /// Waits for the device. Adds the step's laps to their times, and forgets them.
  void add_to(observe::StepTimes& times);

 private:
  std::unique_ptr<device::Timeline> timeline_;
  std::vector<Time> laps_;
  std::map<std::uint64_t, std::vector<Time>> recorded_;  ///< laps by the key of the work
};

}  // namespace lockstep::train
