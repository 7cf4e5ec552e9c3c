#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/observe/records.hpp"
#include "lockstep/study/search/search_folder.hpp"
#include "lockstep/study/search/worker.hpp"

/// What a run's records say of a training that is to end at some epoch.
namespace lockstep::study {

/// A score by which trials are compared.
struct TrialScore {
  std::string name;
  bool more_is_better = true;
  double score = 0;  ///< NaN: the validation has none
};

/// Of one validation: the one that `best` (eval.best) names, or the usual one of the task; that of
/// the average of the weights where there is one. Empty where the epoch has no validation.
std::optional<TrialScore> score_of(const observe::EpochRecord& epoch, const std::string& best);

/// With what is known before it is trained.
LegResult empty_result(const Training& training);

/// The result that the run's records have; empty: the training has not come so far. Throws
/// InputError for records that cannot be read.
std::optional<LegResult> result_in(const std::filesystem::path& run, const Training& training);

/// The same of a run whose newest start ended because it diverged.
std::optional<LegResult> divergence_in(const std::filesystem::path& run, const Training& training);

/// "top-1 0.9123", "diverged: ..."
std::string describe(const LegResult& result);

}  // namespace lockstep::study
