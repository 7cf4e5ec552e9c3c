#pragma once

#include <cstdint>

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

/// Decides after which steps a checkpoint begins. One that becomes due while the one before it is
/// still being written is postponed: steps continue, and the state after the first step that finds
/// the disk free is saved. Every rank has one, and all get the same facts, so all decide alike.
/// **Thread safety:** none; the main thread uses it.
class SaveSchedule {
 public:
  /// `every_steps`: 0 means never.
  explicit SaveSchedule(std::uint64_t every_steps) : every_steps_(every_steps) {}
  /// What rank 0 has told all: by its clock a checkpoint is due; it is still writing one.
  void learn(bool due_by_time, bool writing) {
    due_by_time_ = due_by_time;
    writing_ = writing;
  }
  void learn(bool writing) { writing_ = writing; }
  bool due_by_steps(std::uint64_t step) const {
    return every_steps_ != 0 && step % every_steps_ == 0;
  }
  bool due(std::uint64_t step) const { return due_by_time_ || postponed_ || due_by_steps(step); }
  bool writing() const { return writing_; }
  /// Instead of a save that is due.
  void postpone() { postponed_ = true; }
  void saved() { postponed_ = due_by_time_ = false; }

 private:
  std::uint64_t every_steps_;
  bool due_by_time_ = false, writing_ = false, postponed_ = false;
};

}  // namespace lockstep::train
