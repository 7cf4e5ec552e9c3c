#include "lockstep/device/host_stream.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/device/idle.hpp"

namespace lockstep::device {

constexpr std::size_t most_moving = 4;
/// What is in flight advances at least this often while the stream waits for another one.
constexpr double longest_nap_s = 200e-6;

/// Done once all operations that were in the stream when it was recorded have left it.
class HostEvent final : public Event {
 public:
  HostEvent(HostStream& stream, std::size_t target) : stream_(stream), target_(target) {}
  bool done() override {
    if (stream_.finished_ < target_) stream_.advance();
    return stream_.finished_ >= target_;
  }

 private:
  HostStream& stream_;
  std::size_t target_;
};

/// Done once the operation with this number, counted from the stream's first one, has finished.
class NewestEvent final : public Event {
 public:
  NewestEvent(HostStream& stream, std::size_t number) : stream_(stream), number_(number) {}
  bool done() override {
    stream_.advance();
    if (number_ < stream_.finished_) return true;
    const std::size_t place = number_ - stream_.finished_;
    HostStream::Entry& entry = stream_.operations_[place];
    // One that the host waits for need not come near the front first.
    if (!entry.finished && place >= most_moving) entry.finished = entry.operation->advance();
    return entry.finished;
  }

 private:
  HostStream& stream_;
  std::size_t number_;
};

void HostStream::put(std::unique_ptr<Pending> operation) {
  check(operation != nullptr, "an empty operation was put into a stream");
  operations_.push_back({std::move(operation), false});
}

// A few operations after the front one advance too: that fills the time in which a collective waits
// for answers. Advancing more would use more memory at once and make each call slower.
bool HostStream::advance() {
  for (std::size_t i = 0; i < std::min<std::size_t>(operations_.size(), most_moving); ++i) {
    Entry& entry = operations_[i];
    if (!entry.finished) entry.finished = entry.operation->advance();
  }
  while (!operations_.empty() && operations_.front().finished) {
    operations_.pop_front();
    ++finished_;
  }
  return operations_.empty();
}

std::unique_ptr<Event> HostStream::record() {
  return std::make_unique<HostEvent>(*this, finished_ + operations_.size());
}

std::unique_ptr<Event> HostStream::record_newest() {
  if (operations_.empty()) return record();
  return std::make_unique<NewestEvent>(*this, finished_ + operations_.size() - 1);
}

void HostStream::wait(Event& event) {
  for (Idle idle; !event.done();) {
    const bool empty = advance();
    idle(empty ? event.due_in_s() : std::min(event.due_in_s(), longest_nap_s));
  }
}

void HostStream::synchronize() {
  for (Idle idle; !advance();) idle();
}

namespace {

class HostTimeline final : public Timeline {
 public:
  void mark() override { marks_ms_.push_back(now_ms()); }
  std::vector<double> laps_ms() override {
    std::vector<double> laps;
    for (std::size_t i = 1; i < marks_ms_.size(); ++i)
      laps.push_back(marks_ms_[i] - marks_ms_[i - 1]);
    restart();
    return laps;
  }
  void restart() override { marks_ms_.clear(); }

 private:
  std::vector<double> marks_ms_;
};

}  // namespace

PinnedBuffer Device::allocate_pinned(std::size_t bytes) {
  constexpr std::size_t line = 64;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(line, (bytes + line - 1) / line * line));
  if (!data) throw std::bad_alloc();
  return {data, bytes, [](std::byte* memory) { std::free(memory); }};
}

std::unique_ptr<Timeline> Device::make_timeline() { return std::make_unique<HostTimeline>(); }

std::unique_ptr<Repeater> Device::make_repeater() {
  throw InputError(
      "graph = true needs a GPU: the CPU backend has no streams whose work could be recorded");
}

}  // namespace lockstep::device
