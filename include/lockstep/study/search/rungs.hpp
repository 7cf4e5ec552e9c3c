#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

/// Which trial trains how far next: successive halving, in which trials are promoted from rung to
/// rung (Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2020). A decision is a
/// pure function of the trials and of the results that there are.
namespace lockstep::study {

inline constexpr std::size_t most_rungs = 64;

struct RungSpec {
  std::vector<std::uint64_t> epochs =
      {};                       ///< at which rungs end, rising; the last is the whole length
  std::size_t keep_one_of = 3;  ///< of a rung's trials, as many continue
  /// A rung waits for all its trials: the results are the same for any workers, at any times. Else
  /// trials continue as soon as they are among the best so far.
  bool in_step = false;
};

/// Rungs at first, first x keep_one_of, ... and at the end. Throws InputError where `first` is 0,
/// or later than the end.
std::vector<std::uint64_t> rung_epochs(std::uint64_t first, std::size_t keep_one_of,
                                       std::uint64_t epochs);

/// By rung and then by trial: a score, of which more is better; NaN where the trial has none: it
/// diverged or failed.
using RungResults = std::vector<std::map<std::size_t, double>>;

/// One trial's training from the rung below (or the beginning) to this one.
struct Leg {
  std::size_t trial = 0, rung = 0;
  auto operator<=>(const Leg&) const = default;
};

/// NaN, no score, is worse than all others.
bool is_better(double score, double other);

/// The best first; of equal scores the trial with the lower number. Those without a score are last.
std::vector<std::size_t> ranked(const std::map<std::size_t, double>& results);

/// What may be trained now, the most urgent first: promotions, those of the highest rung first, and
/// then trials that have not begun, by their numbers. Who trains takes the first that no one has.
/// Empty: all is done, or waits for what others train.
std::vector<Leg> due(const RungSpec& spec, const std::set<std::size_t>& trials,
                     const RungResults& results);

/// How many legs at most become due at once, by one result that is still to come.
std::size_t most_to_come(const RungSpec& spec, const std::set<std::size_t>& trials,
                         const RungResults& results);

/// Whether nothing is left, now or later: unlike due(), it does not take a wait for the end.
bool is_complete(const RungSpec& spec, const std::set<std::size_t>& trials,
                 const RungResults& results);

}  // namespace lockstep::study
