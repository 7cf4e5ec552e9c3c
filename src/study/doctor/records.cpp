#include "lockstep/study/doctor/diagnosis.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/observe/rank_times.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/train/files/run_directory.hpp"

namespace lockstep::study {
namespace {

namespace fs = std::filesystem;

double step_ms_of(const observe::RanksRecord& record) {
  std::vector<double> totals;
  for (const observe::StepTimes& times : times_of(record)) totals.push_back(times.total_ms());
  return lower_median(std::move(totals));
}

/// The median over the epochs, from the least to the most of them.
template <class Of>
Interval over_epochs(const NewestStart& told, Of of) {
  std::vector<double> values;
  for (const observe::RanksRecord& record : told.ranks) values.push_back(of(record));
  return span_of(values, lower_median(values));
}

/// Why records do not tell where ranks wait that share batch norm's statistics.
constexpr const char* inside_of_phases =
    "these ranks wait for each other inside of forward and backward, whose times they share: give "
    "doctor the options of train";

/// The rank that is most late in the newest epoch, by what it computes itself.
SlowCause slow_rank(const NewestStart& told) {
  if (told.norm_ranks > 1)
    return {.reason = SlowReason::communication,
            .what = "waiting for a slow rank",
            .not_measured = inside_of_phases};
  const auto late = [](const observe::RanksRecord& record) {
    double most_ms = 0;
    for (const observe::Straggler& one : observe::find_stragglers(times_of(record), 0))
      most_ms = std::max(most_ms, one.late_ms);
    return most_ms;
  };
  SlowCause finding{.reason = SlowReason::communication,
                    .what = "waiting for a slow rank",
                    .cost = over_epochs(told, late)};
  observe::Straggler worst;
  for (const observe::Straggler& one : observe::find_stragglers(times_of(told.ranks.back()), 0))
    if (one.late_ms > worst.late_ms) worst = one;
  if (worst.late_ms > 0)
    finding.what += fmt::format(": rank {} in {}, {:.2f} ms where {:.2f} are usual", worst.rank,
                                to_string(worst.phase), worst.phase_ms, worst.usual_phase_ms);
  return finding;
}

/// Amortised over the steps of all recorded epochs.
SlowCause monitoring(const NewestStart& told) {
  double validation_ms = 0;
  for (const observe::EpochRecord& epoch : told.epochs) validation_ms += epoch.validation_ms;
  const auto steps = static_cast<double>(told.steps);
  const double ms = (validation_ms + told.checkpoints_ms) / steps;
  return {.reason = SlowReason::monitoring,
          .what = fmt::format("validation {:.2f} ms a step, waiting for checkpoints {:.2f}",
                              validation_ms / steps, told.checkpoints_ms / steps),
          .cost = exactly(ms),
          .change = validation_ms > told.checkpoints_ms ? "--eval.every-epochs"
                                                        : "--checkpoint.every-epochs"};
}

}  // namespace

NewestStart read_newest_start(const fs::path& run) {
  const train::RunDirectory directory(run);
  require(fs::exists(directory.metrics()),
          fmt::format("{} is not a run's folder: it has no metrics.jsonl", run.string()));
  NewestStart told;
  bool started = false;
  observe::read_records(directory.metrics(), [&](const observe::Record& record) {
    if (const auto* start = std::get_if<observe::StartRecord>(&record)) {
      told = {};
      told.start = *start;
      started = true;
    } else if (const auto* ranks = std::get_if<observe::RanksRecord>(&record)) {
      told.ranks.push_back(*ranks);
      told.steps += ranks->steps;
    } else if (const auto* epoch = std::get_if<observe::EpochRecord>(&record)) {
      told.epochs.push_back(*epoch);
    } else if (const auto* saved = std::get_if<observe::CheckpointRecord>(&record)) {
      told.checkpoints_ms += saved->blocked_ms;
    }
    return true;
  });
  require(started && !told.ranks.empty(),
          fmt::format("{}: its newest start has not recorded how its ranks spent an epoch yet",
                      directory.metrics().string()));
  try {
    const config::Config config = read_config(run);
    told.norm_ranks = config.model_options.norm_ranks;
    told.shards = config.shards;
  } catch (const InputError&) {  // what-ifs need the configuration, and say what it lacks
  }
  return told;
}

config::Config read_config(const fs::path& run) {
  const train::RunDirectory files(run);
  auto config = config::config_in(read_text(files.config()), files.config().string());
  if (fs::exists(files.decisions()))
    config::apply_toml(config, read_text(files.decisions()), files.decisions().string());
  return config;
}

Diagnosis diagnose_records(const fs::path& run, const NewestStart& told) {
  Diagnosis diagnosis;
  diagnosis.source = fmt::format("by the records of {}", run.string());
  diagnosis.step_ms = over_epochs(told, step_ms_of).middle;
  diagnosis.batch = told.start.batch;
  diagnosis.steps_per_epoch = told.start.steps_per_epoch;
  diagnosis.on_gpus = told.start.gpus > 0;
  diagnosis.devices = static_cast<double>(diagnosis.on_gpus ? told.start.gpus : told.start.cores);
  const auto add = [&](SlowCause finding) { diagnosis.findings.push_back(std::move(finding)); };
  add({.reason = SlowReason::input,
       .what = "the rank that waits longest for rows",
       .cost = over_epochs(told, [](const auto& record) { return record.data.max_ms; }),
       .change = "--data.workers (lockstep bench data shows which part is slow)"});
  add({.reason = SlowReason::communication,
       .what = "reductions that backward does not hide, on the rank that waits least",
       .cost = over_epochs(told, [](const auto& record) { return record.exposed_comm.min_ms; }),
       .change = told.shards > 0 ? "" : "--comm.wire bf16"});
  add(slow_rank(told));
  if (told.norm_ranks > 1)
    add({.reason = SlowReason::communication,
         .what = fmt::format("batch norm's statistics of {} ranks", told.norm_ranks),
         .not_measured = inside_of_phases});
  add(monitoring(told));
  for (const auto& [reason, what] : {std::pair{SlowReason::parallel_work, "fixed costs of a step"},
                                     std::pair{SlowReason::precision, "a lower precision"},
                                     std::pair{SlowReason::memory, "a lack of memory"},
                                     std::pair{SlowReason::allocation, "cores that others use"}})
    add({.reason = reason,
         .what = what,
         .not_measured = "records do not have it: give doctor the options of train"});
  rank_findings(diagnosis);
  return diagnosis;
}

}  // namespace lockstep::study
