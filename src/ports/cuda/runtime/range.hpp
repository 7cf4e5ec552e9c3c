#pragma once

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace lockstep::cuda {

/// Names a span on a profiler's time line: what the host puts into streams during this object's
/// life.
class Range {
 public:
  explicit Range(const std::string& name) { nvtxRangePushA(name.c_str()); }
  ~Range() { nvtxRangePop(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace lockstep::cuda
