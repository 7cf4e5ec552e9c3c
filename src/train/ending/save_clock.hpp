#pragma once

namespace lockstep::train {

/// Tells when a checkpoint is due by time: so long after the one before it, or after the start.
/// Clocks differ between ranks, so one rank must decide for all. It reads no clock: the caller
/// passes the time.
/// **Thread safety:** none; the main thread uses it.
class SaveClock {
 public:
  /// `every_s`: 0 means never.
  SaveClock(double every_s, double now_s) : every_s_(every_s), saved_s_(now_s) {}
  void saved(double now_s) { saved_s_ = now_s; }
  bool due(double now_s) const { return every_s_ > 0 && now_s - saved_s_ >= every_s_; }

 private:
  double every_s_, saved_s_;
};

}  // namespace lockstep::train
