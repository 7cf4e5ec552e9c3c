#pragma once

#include <deque>
#include <memory>

#include "lockstep/device/device.hpp"

namespace lockstep::device {

/// An operation that has started and makes progress when polled: a collective on the host's
/// network.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Makes progress without blocking; true once finished (then not called again).
  virtual bool advance() = 0;
};

/// The CPU's stream: operations finish in the order in which they were put in. An event belongs to
/// the stream that recorded it and must not outlive it. wait() polls until the event is done, so it
/// must not depend on the operations of other streams. **Thread safety:** none; one thread uses it.
class HostStream final : public Stream {
 public:
  void put(std::unique_ptr<Pending> operation);
  bool advance();  ///< makes progress at the front; true when nothing is in flight
  std::unique_ptr<Event> record() override;
  std::unique_ptr<Event> record_newest() override;
  void wait(Event& event) override;
  void synchronize() override;
  std::size_t in_flight() const { return operations_.size(); }

 private:
  friend class HostEvent;
  friend class NewestEvent;
  struct Entry {
    std::unique_ptr<Pending> operation;
    bool finished = false;
  };
  std::deque<Entry> operations_;
  std::size_t finished_ = 0;  ///< operations that have left the front so far
};

}  // namespace lockstep::device
