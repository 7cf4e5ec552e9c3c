#pragma once

#include <chrono>

namespace lockstep {

/// Seconds of a clock that never goes back; only differences mean something.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double now_ms() { return now_s() * 1e3; }

}  // namespace lockstep
