#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/study/search/search_folder.hpp"
#include "lockstep/study/search/worker.hpp"

/// Which trial is the best: its score in the search is of one seed, and was chosen among many, so
/// it is better than what the trial reaches on average. New seeds say more.
namespace lockstep::study {

/// The scores of one trial with several seeds.
struct RepeatedTrial {
  std::size_t trial = 0;
  std::vector<double> scores;  ///< more is better
};

/// The probability that means of as many draws from one normal distribution differ as much as these
/// or more: Welch's test ("The generalization of Student's problem", 1947), two-sided. 1 where one
/// has less than two scores, or both are all the same number.
double chance_of_difference(const std::vector<double>& a, const std::vector<double>& b);

/// What the repeats of the best trials say.
struct BestOf {
  std::vector<std::size_t> order;     ///< by the mean, the best first
  std::vector<double> chances;        ///< of the first against each of the others, in that order
  std::optional<std::size_t> winner;  ///< the first, where it is separated from all others
};
/// Of k trials, equal ones are separated in one of 100 cases at most: the level of each comparison
/// is a 100-th by the number of pairs. REQUIRES: one at least.
BestOf best_of(const std::vector<RepeatedTrial>& trials);

/// Which trials are repeated: as many of the best as asked, and the base. The first to ask decides;
/// later calls, and those of other processes, get the same.
std::vector<std::size_t> repeated_trials(const SearchFolder& folder, std::size_t most);
/// Trains each of them with `repeats` other seeds, the same for all, to the end. `folder` must
/// outlive it.
std::unique_ptr<TrainingList> repeats_of(SearchFolder& folder,
                                         const std::vector<std::size_t>& trials,
                                         std::size_t repeats);
/// A table, and the winner or that there is none. Trainings that diverged or failed are named.
std::string best_text(const SearchFolder& folder, const std::vector<std::size_t>& trials,
                      std::size_t repeats);

/// The search as a journal of Optuna 5 (JournalStorage). Trials that came to the end are complete,
/// others pruned, so its best trial is the first of those. Throws InputError where no trial came to
/// the end.
std::string optuna_journal(const SearchFolder& folder);

/// The trials that have results, each in a folder below `out`, as sessions for TensorBoard's page
/// HPARAMS: with the keys of the space and the scores so far. Files that it wrote before are
/// replaced. Returns how many there are. Throws InputError where there is none.
std::size_t write_sessions(const SearchFolder& folder, const std::filesystem::path& out);

}  // namespace lockstep::study
