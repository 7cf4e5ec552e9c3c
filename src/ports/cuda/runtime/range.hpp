#pragma once

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace lockstep::cuda {

/// A name over a stretch of a profiler's time line: what the host puts into streams meanwhile.
class Range {
 public:
  explicit Range(const std::string& name) { nvtxRangePushA(name.c_str()); }
  ~Range() { nvtxRangePop(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace lockstep::cuda
