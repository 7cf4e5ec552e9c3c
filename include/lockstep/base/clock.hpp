#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

/// Seconds of a clock that never goes back; only differences mean something.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double now_ms() { return now_s() * 1e3; }

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
