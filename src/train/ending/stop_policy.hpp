#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::train {

struct StopSpec {
  /// When every process is killed. Empty: not known on this rank.
  std::optional<double> allocation_end_s = std::nullopt;
  double margin_s = 0;                 ///< time to leave before that
  std::uint64_t stop_after = 0;        ///< stop after this step of the run; 0: never
  std::uint64_t stop_after_epoch = 0;  ///< the same of an epoch and its validation
};

/// Decides when a run has to stop before its last epoch. Every rank has one, but only rank 0 knows
/// when the allocation ends; so the ranks must then agree on the answer. It reads no clock and no
/// signal: the caller passes the time, on the clock of allocation_end_s. Throws nothing.
/// **Thread safety:** none; the main thread uses it.
class StopPolicy {
 public:
  explicit StopPolicy(const StopSpec& spec) : spec_(spec) {}

  void add_step(double seconds) { longest_step_s_ = std::max(longest_step_s_, seconds); }
  void add_save(double seconds) { longest_save_s_ = std::max(longest_save_s_, seconds); }

  /// True if another step and its checkpoints might not end before the allocation does.
  bool time_is_up(double now_s) const;
  /// True if this rank wants all to stop. `signalled`: see stop_requested().
  bool wants_stop(bool signalled, double now_s) const { return signalled || time_is_up(now_s); }
  /// The same answer on all ranks.
  bool ends_after(std::uint64_t step) const {
    return spec_.stop_after != 0 && step == spec_.stop_after;
  }
  bool ends_after_epoch(std::uint64_t epoch) const {
    return spec_.stop_after_epoch != 0 && epoch == spec_.stop_after_epoch;
  }

 private:
  StopSpec spec_;
  double longest_step_s_ = 0, longest_save_s_ = 0;
};

/// What to say at the start where mpirun kills its ranks `patience_s` after Ctrl-C or SIGTERM, and
/// a step and the checkpoint after it may take longer. Empty where they do not. `state_bytes`: of
/// the checkpoint.
std::string warn_of_launcher(double patience_s, double step_s, double state_bytes);

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
