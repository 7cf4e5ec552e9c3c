#pragma once

namespace lockstep::comm {

/// The deadline of a wait for other ranks that a communicator does not make itself. While it is
/// polled, other ranks that look for missing ones learn that this rank waits, too.
class WaitDeadline {
 public:
  virtual ~WaitDeadline() = default;
  /// Call it when something has arrived.
  virtual void renew() = 0;
  /// Call it after a poll that found nothing. Throws Error naming the missing ranks when the
  /// deadline has passed here or on another rank that waits.
  virtual void poll() = 0;
};

}  // namespace lockstep::comm
