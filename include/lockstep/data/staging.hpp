#pragma once

#include <cstdint>

namespace lockstep::data {

/// What stage() found.
struct Staging {
  bool fits = false;
  std::uint64_t bytes = 0;      ///< that it takes
  std::uint64_t there = 0;      ///< of them, from an earlier run or another rank
  std::uint64_t available = 0;  ///< where it goes
};

}  // namespace lockstep::data
