#pragma once

#include <functional>
#include <vector>

namespace lockstep::comm {

/// Tells which ranks a wait is for at this moment: numbers in the world, ascending, without this
/// one.
using Awaited = std::function<std::vector<int>()>;

/// The deadline of a wait for other ranks. While it is polled, other ranks that look for missing
/// ones learn that this rank waits, too.
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
