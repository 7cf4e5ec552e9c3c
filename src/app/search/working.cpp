#include "app/search/working.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <limits>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/cluster/identity/walltime.hpp"
#include "lockstep/train/ending/stop_signal.hpp"

namespace lockstep::app {
namespace {

/// Before an allocation's end, so that stopped trainings have their checkpoints.
constexpr double margin_s = 20;

/// A step's cores are its own, so steps that it starts wait for them for ever. The shell of salloc
/// is a step of another kind, with a number near the largest.
void require_no_step(const cluster::EnvLookup& env) {
  const auto step = whole_number<std::uint64_t>(env("SLURM_STEP_ID").value_or(""));
  require(!step || *step >= 0xfffffff0,
          fmt::format("this worker is step {} of its job, and its trainings would wait for the "
                      "step's cores: start it in the batch script without srun, as "
                      "jobs/search.sbatch does",
                      step.value_or(0)));
}

/// How many trainings an allocation has room for: 0 slots mean that.
std::size_t slots_of(std::size_t slots, std::size_t ranks, const cluster::EnvLookup& env) {
  if (slots > 0) return slots;
  const auto tasks = whole_number<std::uint64_t>(env("SLURM_NTASKS").value_or(""));
  return tasks ? std::max<std::size_t>(1, *tasks / ranks) : 1;
}

}  // namespace

void WorkingOptions::add_to(Arguments app) {
  add_count(app, "--slots", slots, {0, 1000, true},
            "trainings next to each other; auto: as many as the job's tasks have room for");
  app.add("--until", until, "stop then: HH:MM, the next time that this machine's clock shows it");
  add_count(app, "--stale-s", stale_s, {1, 1000000},
            "seconds without a sign of life after which others take a worker's trainings");
  app.add("--launcher", launcher, "auto: srun in a Slurm job, otherwise mpirun for several ranks")
      .one_of({"auto", "srun", "mpirun"})
      .shows_default();
  app.add("--trainer", trainer,
          "what starts a training instead: words for a shell, the first a program, to which those "
          "of "
          "lockstep train are added");
}

double seconds_until(const std::string& time, std::int64_t now) {
  const std::size_t colon = time.find(':');
  const auto hour = whole_number<int>(time.substr(0, colon));
  const auto minute = whole_number<int>(colon == std::string::npos ? "" : time.substr(colon + 1));
  require(hour && minute && *hour < 24 && *minute < 60,
          fmt::format("--until: '{}' is no time of a day: write HH:MM", time));
  const std::time_t began = now;
  std::tm local{};
  ::localtime_r(&began, &local);
  local.tm_hour = *hour;
  local.tm_min = *minute;
  local.tm_sec = 0;
  local.tm_isdst = -1;
  std::time_t end = ::mktime(&local);
  if (end <= began) {
    ++local.tm_mday;
    local.tm_isdst = -1;
    end = ::mktime(&local);
  }
  return static_cast<double>(end - began);
}

study::WorkerOutcome work_as_asked(study::SearchFolder& folder, study::TrainingList& list,
                                   const WorkingOptions& options) {
  require_no_ranks("search");
  const cluster::EnvLookup env = cluster::process_environment();
  const study::StudyLauncher launcher = study::launcher_of(options.launcher, env);
  if (launcher == study::StudyLauncher::srun && options.trainer.empty()) require_no_step(env);
  const double began_s = now_s();
  double end_s = std::numeric_limits<double>::infinity();
  if (!options.until.empty()) end_s = began_s + seconds_until(options.until, std::time(nullptr));
  if (const auto left_s = cluster::allocation_left_s(env))
    end_s = std::min(end_s, began_s + *left_s - margin_s);
  train::catch_stop_signals(false);
  const study::WorkerOutcome outcome =
      study::work(folder, list,
                  {.program = own_program().string(),
                   .launcher = launcher,
                   .trainer = options.trainer,
                   .slots = slots_of(options.slots, folder.spec().ranks, env),
                   .stale_s = static_cast<double>(options.stale_s),
                   .left_s = [end_s] { return end_s - now_s(); }});
  log::info(
      fmt::format("{} done by this worker, {} diverged, {} failed, {} stopped; {:.2f} node "
                  "hours used by all{}",
                  counted(outcome.done, "training"), outcome.diverged, outcome.failed,
                  outcome.stopped, folder.node_hours(),
                  outcome.complete         ? "; nothing is left"
                  : outcome.left_to_others ? "; what is left, others train"
                  : outcome.told_to_stop   ? "; stopped by a signal"
                  : outcome.out_of_time    ? "; the time left is too short for the next one"
                  : outcome.out_of_hours   ? "; the node hours are used"
                                           : ""));
  if (!outcome.choices_ms.empty())
    log::info(fmt::format("choosing one took {:.1f} ms (median), at most {:.1f} ms",
                          upper_median(outcome.choices_ms), std::ranges::max(outcome.choices_ms)));
  if (!outcome.gave_up.empty()) log::error(outcome.gave_up);
  return outcome;
}

Status status_of(const study::WorkerOutcome& outcome) {
  if (!outcome.gave_up.empty()) return status_failed;
  if (outcome.complete) return status_done;
  return outcome.told_to_stop || outcome.out_of_time ? status_stopped : status_done;
}

}  // namespace lockstep::app
