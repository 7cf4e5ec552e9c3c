#include "lockstep/comm/activity.hpp"

#include <optional>

#include "ports/cuda/runtime/range.hpp"

namespace lockstep::cuda {
namespace {

/// A phase may begin inside of a Range and outlive it, so these ranges are not a stack.
class PhaseRanges final : public comm::ActivityObserver {
 public:
  explicit PhaseRanges(const comm::ActivityTracker& activity) : activity_(activity) {
    activity_.add(*this);
  }
  ~PhaseRanges() override {
    activity_.remove(*this);
    end();
  }
  PhaseRanges(const PhaseRanges&) = delete;
  PhaseRanges& operator=(const PhaseRanges&) = delete;

  void changed(const comm::Activity& now) override {
    if (range_ && now.phase == phase_ && now.step == step_) return;
    end();
    phase_ = now.phase;
    step_ = now.step;
    nvtxEventAttributes_t span = span_named(comm::to_string(phase_));
    span.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    span.payload.ullValue = step_;
    range_ = nvtxDomainRangeStartEx(profiler_domain(), &span);
  }

 private:
  void end() {
    if (range_) nvtxDomainRangeEnd(profiler_domain(), *range_);
    range_.reset();
  }

  const comm::ActivityTracker activity_;
  comm::Phase phase_ = comm::Phase::start_up;
  std::uint64_t step_ = 0;
  std::optional<nvtxRangeId_t> range_;
};

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep::comm {

std::unique_ptr<ActivityObserver> make_phase_ranges(const ActivityTracker& activity) {
  return std::make_unique<cuda::PhaseRanges>(activity);
}

}  // namespace lockstep::comm
