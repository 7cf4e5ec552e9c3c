#include "ports/clock/stream.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/device/idle.hpp"

namespace lockstep::clock {
namespace {

class ClockEvent final : public device::Event {
 public:
  explicit ClockEvent(double end_s) : end_s_(end_s) {}
  bool done() override { return now_s() >= end_s_; }
  double due_in_s() const override { return std::max(0.0, end_s_ - now_s()); }

 private:
  double end_s_;
};

class ClockTimeline final : public device::Timeline {
 public:
  explicit ClockTimeline(ClockStream& stream) : stream_(stream) {}
  void mark() override {
    stream_.begin();
    marks_s_.push_back(stream_.end_s());
  }
  std::vector<double> laps_ms() override {
    stream_.synchronize();
    std::vector<double> laps;
    for (std::size_t i = 1; i < marks_s_.size(); ++i)
      laps.push_back(1e3 * (marks_s_[i] - marks_s_[i - 1]));
    restart();
    return laps;
  }
  void restart() override { marks_s_.clear(); }

 private:
  ClockStream& stream_;
  std::vector<double> marks_s_;
};

}  // namespace

void ClockStream::begin() {
  if (std::exchange(idle_, false)) end_s_ = std::max(end_s_, now_s());
}

void ClockStream::pass(double ms) {
  begin();
  end_s_ += ms / 1e3;
}

std::unique_ptr<device::Event> ClockStream::record() {
  return std::make_unique<ClockEvent>(end_s_);
}

/// What was done before the host asked did not delay this stream.
void ClockStream::wait(device::Event& event) {
  if (event.done()) return;
  for (device::Idle idle; !event.done();) idle(event.due_in_s());
  end_s_ = std::max(end_s_, now_s());
}

void ClockStream::synchronize() {
  ClockEvent end(end_s_);
  for (device::Idle idle; !end.done();) idle(end.due_in_s());
  idle_ = true;
}

std::unique_ptr<device::Timeline> ClockDevice::make_timeline() {
  return std::make_unique<ClockTimeline>(compute_);
}

}  // namespace lockstep::clock
