#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace lockstep::test {

inline void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

/// Polls for at most 10 s: a test must not wait forever.
inline bool becomes(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i, pause_ms(10))
    if (condition()) return true;
  return condition();
}

}  // namespace lockstep::test
