#pragma once

#include <algorithm>

#include "lockstep/base/clock.hpp"

namespace lockstep {

/// A deadline for something that is polled. The time between two polls counts for at most one
/// second: time that this rank spends suspended is not the other ranks' delay.
class Countdown {
 public:
  explicit Countdown(double deadline_s) : left_s_(deadline_s), last_s_(now_s()) {}

  /// Call it after a poll that found nothing.
  bool over() {
    const double now = now_s();
    left_s_ -= std::min(now - last_s_, 1.0);
    last_s_ = now;
    return left_s_ < 0;
  }

 private:
  double left_s_, last_s_;
};

}  // namespace lockstep
