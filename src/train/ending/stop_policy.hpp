#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::train {

struct StopSpec {
  /// When every process is killed. Empty: not known on this rank.
  std::optional<double> allocation_end_s = std::nullopt;
  double margin_s = 0;           ///< time to leave before that
  std::uint64_t stop_after = 0;  ///< stop after this step of the run; 0: never
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

 private:
  StopSpec spec_;
  double longest_step_s_ = 0, longest_save_s_ = 0;
};

/// What to say at the start where mpirun kills its ranks `patience_s` after Ctrl-C or SIGTERM, and
/// a step and the checkpoint after it may take longer. Empty where they do not. `state_bytes`: of
/// the checkpoint.
std::string warn_of_launcher(double patience_s, double step_s, double state_bytes);

}  // namespace lockstep::train
