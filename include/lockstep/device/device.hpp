#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::device {

/// Host memory that a device can copy from at full speed (page-locked for a GPU, 64-byte aligned
/// for a CPU).
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(std::byte* data, std::size_t size, std::function<void(std::byte*)> release)
      : data_(data, std::move(release)), size_(size) {}
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> data_{nullptr, [](std::byte*) {}};
  std::size_t size_ = 0;
};

/// A point in a stream's order of work.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool done() = 0;  ///< everything recorded before this event has finished; never blocks
  /// It is certainly not done for this long, so that a waiting host may sleep; 0 where that is not
  /// known.
  virtual double due_in_s() const { return 0; }
};

/// A queue of work that runs in order. A GPU's stream runs later than the host's calls. The CPU's
/// compute stream has finished each step when the call returns, and its network stream holds the
/// collectives that are still in flight.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual std::unique_ptr<Event> record() = 0;
  /// An event for the newest work alone: where a stream's operations overlap in time, as on the
  /// host's network, earlier ones may still be in flight when it is done.
  virtual std::unique_ptr<Event> record_newest() { return record(); }
  virtual void wait(Event& event) = 0;  ///< later work of this stream starts after `event`; blocks
                                        ///< the host only on a CPU
  virtual void synchronize() = 0;  ///< blocks the host until everything in the stream has finished
};

/// Measures where a step's time goes. It uses the device's own clock where there is one, because a
/// GPU runs later than the host.
class Timeline {
 public:
  virtual ~Timeline() = default;
  virtual void mark() = 0;  ///< a point in the compute stream's order of work
  /// Milliseconds between neighbouring marks. Waits until the last mark has been reached, then
  /// forgets all marks.
  virtual std::vector<double> laps_ms() = 0;
  /// The device makes the next `count` marks itself, in work that a Repeater has recorded.
  virtual void repeat_marks(std::size_t) {}
  virtual void restart() = 0;  ///< forgets all marks
};

/// Puts the same work into a device's streams again and again. This one calls the work each time. A
/// device that can repeat without the host's calls records it instead.
class Repeater {
 public:
  virtual ~Repeater() = default;
  /// Work of one key is the same in each run: the same operations on the same memory. It begins and
  /// ends on the compute stream. True if the streams hold a recording of it: then its events are
  /// not those of this run, and `work` may not have been called. Throws Error when work cannot be
  /// recorded, with the reason.
  virtual bool run(std::uint64_t key, const std::function<void()>& work) {
    static_cast<void>(key);
    work();
    return false;
  }
};

/// The processor that a rank computes on.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  /// Of the host, unless the device has its own kind. Throws std::bad_alloc.
  virtual PinnedBuffer allocate_pinned(std::size_t bytes);
  virtual Stream& compute() = 0;
  /// Measures the bytes per second at which the device copies from this memory; nothing where it
  /// computes in the host's memory itself.
  virtual std::optional<double> upload_rate(const PinnedBuffer&) { return std::nullopt; }
  /// How many steps may still run while the host puts the next one into the streams; 0: the host
  /// ends each step before the next one, as on a device that runs as the host calls.
  virtual std::size_t steps_ahead() const { return 0; }
  /// Uses the host's clock, unless the device has its own.
  virtual std::unique_ptr<Timeline> make_timeline();
  /// Records work, so that one call of the host repeats it. Throws InputError where the device runs
  /// as the host calls.
  virtual std::unique_ptr<Repeater> make_repeater();
  /// Shows the progress of a device that runs later than the host: the word holds the newest mark
  /// that its compute stream has reached. Null where the host is never ahead. **Thread safety:**
  /// any thread may read the word, even when the device hangs.
  virtual const volatile std::uint64_t* progress_word() const { return nullptr; }
  virtual void mark_progress(std::uint64_t) {}  ///< after what is in the compute stream now
};

}  // namespace lockstep::device
