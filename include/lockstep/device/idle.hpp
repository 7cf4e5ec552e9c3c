#pragma once

#include <chrono>
#include <thread>

#include "lockstep/base/clock.hpp"

namespace lockstep::device {

/// How a host thread waits for something that it has to poll. A short wait keeps the core: given to
/// a busy process, it comes back only milliseconds later. A longer wait yields the core at each
/// turn, because another rank of an oversubscribed node, or this rank's loader, may need it. A long
/// wait sleeps, so that it does not show as load.
class Idle {
 public:
  /// `due_in_s`: how long the wait certainly lasts, where that is known; then it sleeps at once.
  void operator()(double due_in_s = 0) {
    if (due_in_s > 2 * wake_up_s) {
      std::this_thread::sleep_for(std::chrono::duration<double>(due_in_s - wake_up_s));
      return;
    }
    const double now = now_s();
    if (started_s_ == 0) started_s_ = now;
    const double waited_s = now - started_s_;
    if (waited_s < spin_s) return;
    if (waited_s < yield_s) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  static constexpr double spin_s = 500e-6, yield_s = 20e-3, wake_up_s = 80e-6;
  double started_s_ = 0;
};

}  // namespace lockstep::device
