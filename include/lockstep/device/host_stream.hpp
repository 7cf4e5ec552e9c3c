#pragma once

#include <deque>
#include <memory>

#include "lockstep/device/device.hpp"

namespace lockstep::device {

/// An operation that started and finishes by being asked: a collective on the host's network.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Moves on without blocking; true once finished (then not called again).
  virtual bool advance() = 0;
};

/// The CPU's stream: operations finish in the order in which they were put in. Used by one thread.
/// An event belongs to the stream that recorded it and must not outlive it. wait() polls until the
/// event is done, so other streams' operations must not be needed for that.
class HostStream final : public Stream {
 public:
  void put(std::unique_ptr<Pending> operation);
  bool advance();  ///< moves the front operations on; true when nothing is in flight
  std::unique_ptr<Event> record() override;
  void wait(Event& event) override;
  void synchronize() override;
  std::size_t in_flight() const { return operations_.size(); }

 private:
  friend class HostEvent;
  struct Entry {
    std::unique_ptr<Pending> operation;
    bool finished = false;
  };
  std::deque<Entry> operations_;
  std::size_t finished_ = 0;  ///< operations that ever left the front
};

}  // namespace lockstep::device
