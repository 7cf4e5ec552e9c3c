#pragma once

#include "lockstep/device/device.hpp"

namespace lockstep::clock {

/// The compute stream of a device that is not there. It holds one number: when the work in it ends.
/// Work only moves that time, so the host continues at once, as with a GPU. Work begins when the
/// work before it ends, even if the host was late: a busy host does not slow this device down.
class ClockStream final : public device::Stream {
 public:
  /// If the host has seen the end of all work, the device is idle, and later work begins now.
  void begin();
  void pass(double ms);  ///< puts work of this length into the stream
  double end_s() const { return end_s_; }
  std::unique_ptr<device::Event> record() override;
  void wait(device::Event& event) override;
  void synchronize() override;

 private:
  double end_s_ = 0;  // by now_s()
  bool idle_ = true;
};

/// Host memory, and the stream above.
class ClockDevice final : public device::Device {
 public:
  std::string name() const override { return "clock"; }
  ClockStream& compute() override { return compute_; }
  /// By the stream's time, not the host's.
  std::unique_ptr<device::Timeline> make_timeline() override;

 private:
  ClockStream compute_;
};

}  // namespace lockstep::clock
