#include "train/step_laps.hpp"

#include "lockstep/base/error.hpp"

namespace lockstep::train {

void StepLaps::begin() {
  timeline_->restart();
  laps_.clear();
  timeline_->mark();
}

void StepLaps::end(Time time) {
  timeline_->mark();
  laps_.push_back(time);
}

bool StepLaps::repeat(device::Repeater& repeater, std::uint64_t key,
                      const std::function<void()>& work) {
  const auto before = static_cast<std::ptrdiff_t>(laps_.size());
  bool called = false;
  const bool repeated = repeater.run(key, [&] {
    called = true;
    work();
  });
  std::vector<Time>& recorded = recorded_[key];
  if (called) {
    recorded.assign(laps_.begin() + before, laps_.end());
  } else {
    timeline_->repeat_marks(recorded.size());
    laps_.insert(laps_.end(), recorded.begin(), recorded.end());
  }
  return repeated;
}

void StepLaps::add_to(observe::StepTimes& times) {
  const std::vector<double> laps_ms = timeline_->laps_ms();
  check(laps_ms.size() == laps_.size(), "a step's marks and laps differ");
  for (std::size_t i = 0; i < laps_.size(); ++i) times.*laps_[i] += laps_ms[i];
  laps_.clear();
}

}  // namespace lockstep::train
