#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
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
    restart();
    return laps;
  }
  void restart() override { marks_ms_.clear(); }

 private:
  std::vector<double> marks_ms_;
};

}  // namespace

std::unique_ptr<Timeline> Device::make_timeline() { return std::make_unique<HostTimeline>(); }

std::unique_ptr<Repeater> Device::make_repeater() {
  throw InputError(
      "graph = true needs a GPU: the CPU backend has no streams whose work could be recorded");
}

}  // namespace lockstep::device
