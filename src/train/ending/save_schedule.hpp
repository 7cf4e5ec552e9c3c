#pragma once

#include <cstdint>

namespace lockstep::train {

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
