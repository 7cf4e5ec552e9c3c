#pragma once

#include <cstdint>

namespace lockstep::data {

/// The result of copy_to().
struct NodeCopy {
  bool fits = false;
  std::uint64_t bytes = 0;      ///< that the copy takes
  std::uint64_t there = 0;      ///< of these, copied by an earlier run or another rank
  std::uint64_t available = 0;  ///< free space at the target
};

}  // namespace lockstep::data
