#include "train/loop/step_laps.hpp"

#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::train {

void StepLaps::begin() {
  running_ = nullptr;
  timeline_->mark();
  steps_.emplace_back();
}

void StepLaps::end(Time time) {
  (running_ ? running_->timeline : timeline_)->mark();
  if (running_)
    running_->laps.push_back(time);
  else
    steps_.back().laps.push_back({.time = time});
}

bool StepLaps::repeat(device::Repeater& repeater, std::uint64_t key,
                      const std::function<void()>& work) {
  Work& known = works_[key];
  if (!known.timeline) known.timeline = device_.make_timeline();
  const bool repeated = repeater.run(key, [&] {
    known.timeline->restart();
    known.laps.clear();
    running_ = &known;
    known.timeline->mark();
    work();
    running_ = nullptr;
  });
  timeline_->mark();
  steps_.back().laps.push_back({.work = &known});
  return repeated;
}

void StepLaps::share_out(double ms, const Work& work, observe::StepTimes& times) {
  work.timeline->restart();
  work.timeline->repeat_marks(work.laps.size() + 1);
  const std::vector<double> newest_ms = work.timeline->laps_ms();
  check(newest_ms.size() == work.laps.size(), "the marks and laps of repeated work differ");
  double sum = 0;
  for (const double lap : newest_ms) sum += lap;
  for (std::size_t i = 0; i < work.laps.size(); ++i)
    times.*work.laps[i] += sum > 0 ? ms * newest_ms[i] / sum : 0;
}

std::vector<StepLap> StepLaps::take() {
  const std::vector<double> laps_ms = timeline_->laps_ms();
  std::vector<StepLap> taken;
  std::size_t next = 0;
  for (const Step& run : std::exchange(steps_, {})) {
    StepLap& step = taken.emplace_back();
    if (taken.size() > 1) step.idle_ms = laps_ms.at(next++);
    for (const Lap& lap : run.laps) {
      const double ms = laps_ms.at(next++);
      if (lap.work)
        share_out(ms, *lap.work, step.times);
      else
        step.times.*lap.time += ms;
    }
    for (const Move& move : run.moves) {
      step.times.*move.from -= move.ms;
      step.times.*move.to += move.ms;
    }
  }
  check(next == laps_ms.size(), "the steps' marks and laps differ");
  return taken;
}

}  // namespace lockstep::train
