#pragma once

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace lockstep::cuda {

/// Where a profiler finds this program's spans.
inline nvtxDomainHandle_t profiler_domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("lockstep");
  return domain;
}

/// A span's name, which must outlive this.
inline nvtxEventAttributes_t span_named(const char* name) {
  nvtxEventAttributes_t span{};
  span.version = NVTX_VERSION;
  span.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  span.messageType = NVTX_MESSAGE_TYPE_ASCII;
  span.message.ascii = name;
  return span;
}

/// Names a span on a profiler's time line: what the host puts into streams during this object's
/// life.
class Range {
 public:
  explicit Range(const std::string& name) {
    const nvtxEventAttributes_t span = span_named(name.c_str());
    nvtxDomainRangePushEx(profiler_domain(), &span);
  }
  ~Range() { nvtxDomainRangePop(profiler_domain()); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace lockstep::cuda
