#include "study/search/verdict.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "lockstep/observe/summary.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/scores.hpp"

namespace lockstep::study {
namespace {

namespace fs = std::filesystem;

/// The scores of a task are known by those that only it has.
data::Task task_of(const observe::Validation& validation) {
  if (validation.scores.contains("RMSE")) return data::Task::values;
  return validation.scores.contains("mAP") ? data::Task::labels : data::Task::classes;
}

void add_start(const observe::Course& course, LegResult& result) {
  if (course.starts.empty()) return;
  const observe::StartRecord& start = course.starts.back();
  result.ranks = start.ranks;
  result.hosts = start.hosts;
  result.devices = start.devices;
}

}  // namespace

std::optional<TrialScore> score_of(const observe::EpochRecord& epoch, const std::string& best) {
  if (!epoch.validation) return std::nullopt;
  const observe::Validation& decisive = epoch.average ? *epoch.average : *epoch.validation;
  const train::ScoreKind& kind = train::score_kind(task_of(decisive), best);
  return TrialScore{
      kind.name, kind.more_is_better,
      train::score_in(decisive, kind).value_or(std::numeric_limits<double>::quiet_NaN())};
}

LegResult empty_result(const Training& training) {
  return {.trial = training.trial,
          .rung = training.rung,
          .epoch = training.to_epoch,
          .score = std::numeric_limits<double>::quiet_NaN()};
}

std::optional<LegResult> result_in(const fs::path& run, const Training& training) {
  const observe::Course course = observe::read_course(train::RunDirectory(run).metrics());
  for (const observe::EpochRecord& epoch : course.epochs) {
    if (epoch.epoch != training.to_epoch) continue;
    const auto score = score_of(epoch, training.keys.eval.best);
    if (!score) continue;
    LegResult result = empty_result(training);
    add_start(course, result);
    result.score_name = score->name;
    result.more_is_better = score->more_is_better;
    result.score = score->score;
    if (std::isfinite(score->score)) return result;
    result.end = LegEnd::diverged;
    result.reason = fmt::format("its {} is no number", score->name);
    return result;
  }
  return std::nullopt;
}

std::optional<LegResult> divergence_in(const fs::path& run, const Training& training) {
  const observe::Course course = observe::read_course(train::RunDirectory(run).metrics());
  if (!course.end || course.end->ending != Ending::diverged) return std::nullopt;
  LegResult result = empty_result(training);
  add_start(course, result);
  result.end = LegEnd::diverged;
  result.reason = course.end->reason;
  return result;
}

std::string describe(const LegResult& result) {
  if (result.end == LegEnd::done) return fmt::format("{} {:.4f}", result.score_name, result.score);
  return fmt::format("{}: {}", choice_name(result.end), result.reason);
}

}  // namespace lockstep::study
