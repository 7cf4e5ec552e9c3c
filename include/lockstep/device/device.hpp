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
};

/// Work in order. A GPU's stream runs behind the host; the CPU's compute stream has finished each
/// step when the call returns, and its network stream holds the collectives that are still in
/// flight.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual std::unique_ptr<Event> record() = 0;
  virtual void wait(Event& event) = 0;  ///< later work of this stream starts after `event`; blocks
                                        ///< the host only on a CPU
  virtual void synchronize() = 0;  ///< blocks the host until everything in the stream has finished
};

/// Where a step's time goes, by the device's own clock: a GPU runs behind the host.
class Timeline {
 public:
  virtual ~Timeline() = default;
  virtual void mark() = 0;  ///< a point in the compute stream's order of work
  /// Milliseconds between neighbouring marks; forgets all marks. Waits until the last one has been
  /// reached.
  virtual std::vector<double> laps_ms() = 0;
};

/// What a rank computes on.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  virtual PinnedBuffer allocate_pinned(std::size_t bytes) = 0;
  virtual Stream& compute() = 0;
  /// Bytes per second at which the device copies from this memory, measured; nothing where it
  /// computes on the host's memory itself.
  virtual std::optional<double> upload_rate(const PinnedBuffer&) { return std::nullopt; }
  /// By the host's clock, unless the device has its own.
  virtual std::unique_ptr<Timeline> make_timeline();
  /// How far a device that runs after the host has come: the word holds the newest mark that its
  /// compute stream has reached. Any thread may read it, also when the device hangs; null where the
  /// host is never ahead.
  virtual const volatile std::uint64_t* progress_word() const { return nullptr; }
  virtual void mark_progress(std::uint64_t) {}  ///< after what is in the compute stream now
};

}  // namespace lockstep::device
