#pragma once

#include <chrono>
#include <thread>

#include "lockstep/base/clock.hpp"

namespace lockstep {

/// How a host thread waits for something that it has to poll. It gives its core away at each turn,
/// because what it waits for may need that core: another rank of an oversubscribed node, or this
/// rank's loader. A long wait sleeps, so that it does not show as load.
class Idle {
 public:
  void operator()() {
    const double now = now_s();
    if (started_s_ == 0) started_s_ = now;
    if (now - started_s_ < 20e-3) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  double started_s_ = 0;
};

}  // namespace lockstep
