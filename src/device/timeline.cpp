#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::device {

namespace {

class HostTimeline final : public Timeline {
 public:
  void mark() override { marks_ms_.push_back(now_ms()); }
  std::vector<double> laps_ms() override {
    std::vector<double> laps;
    for (std::size_t i = 1; i < marks_ms_.size(); ++i)
      laps.push_back(marks_ms_[i] - marks_ms_[i - 1]);
    marks_ms_.clear();
    return laps;
  }

 private:
  std::vector<double> marks_ms_;
};

}  // namespace

std::unique_ptr<Timeline> Device::make_timeline() { return std::make_unique<HostTimeline>(); }

}  // namespace lockstep::device
