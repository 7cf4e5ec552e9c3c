#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "lockstep/base/clock.hpp"

namespace lockstep::device {

/// How a host thread waits for something that it has to poll. A short wait keeps the core: given to
/// a busy process, it comes back only milliseconds later. A longer wait yields the core at each
/// turn, because another rank of an oversubscribed node, or this rank's loader, may need it. A long
/// wait naps, so that it does not show as load.
///
/// Where yielding shows that others do need the core, the waits of the next second nap from their
/// start: a thread that slept is soon given the core again, one that polled is not. And the later
/// naps end, the longer they become, until all who wait together leave the cores some time.
class Idle {
 public:
  /// `due_in_s`: how long the wait certainly lasts, where that is known; then it sleeps at once.
  void operator()(double due_in_s = 0) {
    if (due_in_s > 2 * wake_up_s) return sleep(due_in_s - wake_up_s);
    const double now = now_s();
    if (started_s_ == 0) started_s_ = now;
    const double waited_s = now - started_s_;
    if (waited_s >= yield_s || now < shared_until_s_) return nap(now);
    if (waited_s < spin_s) return;
    std::this_thread::yield();
    const double after_s = now_s();
    if (after_s - now > longest_yield_s) shared_until_s_ = after_s + remembered_s;
  }

 private:
  static void sleep(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  static void nap(double now) {
    sleep(nap_s_);
    const double after_s = now_s();
    const bool late = after_s - now > nap_s_ + late_s;
    nap_s_ = std::clamp(nap_s_ * (late ? 1.5 : 0.9), shortest_nap_s, longest_nap_s);
    if (late) shared_until_s_ = after_s + remembered_s;
  }
  static constexpr double spin_s = 500e-6, yield_s = 20e-3, wake_up_s = 80e-6;
  static constexpr double longest_yield_s = 300e-6;  ///< of a core that this thread has alone
  static constexpr double late_s = 250e-6;
  static constexpr double shortest_nap_s = 50e-6, longest_nap_s = 2e-3;
  static constexpr double remembered_s = 1;
  static inline thread_local double shared_until_s_ = 0, nap_s_ = shortest_nap_s;
  double started_s_ = 0;
};

}  // namespace lockstep::device
