#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/train/ending/notify.hpp"
#include "train/loop/run_loop.hpp"

// How a run makes its steps: it launches each, and reads one or several together. A device that
// runs as the host calls has each step read at once. Another one would be idle meanwhile, so its
// steps are read only after a short time, and where the run must know them: at the end of an epoch,
// before an audit and a checkpoint, and where it stops. Ranks meet when they read, so an exchange
// whose ranks need not meet in each step has several read together on any device.
namespace lockstep::train {
namespace {

constexpr std::size_t most_unread = 64;
constexpr double unread_s = 0.25;  // a stop, or a log line, may be so late

}  // namespace

bool RunLoop::step() {
  if (!step_ended_ms_) step_ended_ms_ = now_ms();
  look_at_saves();
  launch();
  release_ended();
  return reads_now() && read_steps();
}

void RunLoop::launch() {
  const std::uint64_t number = progress_.step + launched_.size() + 1;
  const std::uint64_t index = progress_.batch + launched_.size();
  control_.activity.begin_step(number);
  LaunchedStep step;
  step.began_s = now_s();
  step.global_rows = data_.global_rows(index);
  step.lr = optim::learning_rate(schedule_, progress_.epoch * steps_per_epoch_ + index);
  const double mark_ms = now_ms();
  const data::Batch batch = data_.next(index);
  step.data_ms = now_ms() - mark_ms;
  step.batch = batch;
  if (spec_.grid.tiles.index == 0)  // the other tiles have met the same ones
    for (std::string& row : data_.bad_rows(batch)) bad_rows_.push_back(std::move(row));
  communicator_.begin_step(number);
  trainer_.launch(batch, step.global_rows, step.lr, [&] { return data_.look_ahead(index + 1); });
  launched_.push_back(std::move(step));
}

/// The batches of the steps that have ended.
void RunLoop::release_ended() {
  const std::size_t ahead = backend_.device().steps_ahead();
  trainer_.let_run(ahead);
  for (std::size_t i = 0; i + ahead < launched_.size(); ++i)
    if (const auto batch = std::exchange(launched_[i].batch, std::nullopt)) data_.release(*batch);
}

/// The same answer on all ranks.
bool RunLoop::reads_now() const {
  const std::uint64_t step = progress_.step + launched_.size();
  return launched_.size() >= read_after_ ||
         progress_.batch + launched_.size() >= steps_per_epoch_ ||
         due(step, config_.audit.every_steps) || saves_.due_by_steps(step) ||
         stop_policy_.ends_after(step);
}

/// Waits for all launched steps. True if the ranks agreed to stop after them.
bool RunLoop::read_steps() {
  std::vector<StepReport> reports;
  for (std::size_t i = 0; i < launched_.size(); ++i) reports.push_back(trainer_.report());
  for (LaunchedStep& step : launched_)
    if (const auto batch = std::exchange(step.batch, std::nullopt)) data_.release(*batch);
  std::vector<LaunchedStep> steps = std::exchange(launched_, {});
  const std::vector<std::string> bad_rows = std::exchange(bad_rows_, {});

  const double mark_ms = now_ms();
  const Agreed agreed = add_up(reports, bad_rows.size());
  reports.back().times.exposed_comm_ms += now_ms() - mark_ms;
  const double seconds = now_s() - steps.front().began_s;
  stop_policy_.add_step(seconds);
  saves_.learn(agreed.save, agreed.saving);
  read_after_ = agreed.read_after;
  if (agreed.bad_rows) note_bad_rows(bad_rows);
  add_wall_times(steps, reports);

  for (std::size_t i = 0; i < steps.size(); ++i) {
    check(agreed.steps[i].rows == static_cast<double>(steps[i].global_rows),
          "a step has lost rows");
    Trainer::require_scaling(reports[i]);
    advance(agreed.steps[i], reports[i].skipped());
    record_step(reports[i], agreed.steps[i], steps[i]);
    if (is_root() && statistics_.steps == 2) judge_launcher(seconds);
    rank_times_.add(reports[i].times, control_);
  }
  if (due(progress_.step, config_.audit.every_steps)) audit();
  return agreed.stop || stop_policy_.ends_after(progress_.step);
}

/// One small exchange serves the metrics and the decisions to stop and to write a checkpoint, which
/// all ranks must make after the same step.
RunLoop::Agreed RunLoop::add_up(const std::vector<StepReport>& mine, std::size_t bad_rows) {
  control_.activity.enter(comm::Phase::end_of_step);
  std::vector<double> values;
  constexpr std::size_t of_a_step = 6;
  for (const StepReport& report : mine) {
    const backend::Metrics& one = report.metrics;
    values.insert(values.end(),
                  {one.loss, static_cast<double>(one.rows), static_cast<double>(one.top1),
                   one.sums[0], one.sums[1], one.sums[2]});
  }
  values.insert(values.end(),
                {wants_stop() ? 1.0 : 0.0, static_cast<double>(bad_rows),
                 is_root() && save_clock_.due(now_s()) ? 1.0 : 0.0, files_.saving() ? 1.0 : 0.0,
                 is_root() ? static_cast<double>(steps_to_read()) : 0.0});
  const std::vector<double> sums = control_.sum(values, "step");
  Agreed agreed;
  for (auto at = sums.begin(); agreed.steps.size() < mine.size(); at += of_a_step)
    agreed.steps.push_back(
        {.loss = at[0], .rows = at[1], .top1 = at[2], .sums = {at[3], at[4], at[5]}});
  const auto decisions = sums.end() - 5;
  agreed.stop = decisions[0] > 0;
  agreed.bad_rows = decisions[1] > 0;
  agreed.save = decisions[2] > 0;
  agreed.saving = decisions[3] > 0;
  agreed.read_after = static_cast<std::size_t>(decisions[4]);
  return agreed;
}

/// Rank 0's proposal: as many steps as end in a short time.
std::size_t RunLoop::steps_to_read() const {
  const std::optional<double> step_s = statistics_.usual_step_s();
  const std::size_t unmet = trainer_.exchange().meets_every();
  if (backend_.device().steps_ahead() == 0 || !step_s) return unmet;
  return std::max(unmet, static_cast<std::size_t>(std::clamp(unread_s / *step_s, 1.0,
                                                             static_cast<double>(most_unread))));
}

/// A step goes from the end of the one before it to its own end, by the device's clock, where the
/// host has not read in between; the first one by what the host's clock leaves to it.
void RunLoop::add_wall_times(std::vector<LaunchedStep>& steps, std::vector<StepReport>& reports) {
  const double now = now_ms();
  double left_ms = now - *step_ended_ms_;
  step_ended_ms_ = now;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    observe::StepTimes& times = reports[i].times;
    times.data_ms = steps[i].data_ms;
    if (reports[i].idle_ms) {
      // While the device was busy, a wait for the loader cost nothing.
      times.data_ms = std::min(times.data_ms, *reports[i].idle_ms);
      times.other_ms = *reports[i].idle_ms - times.data_ms;
    }
    left_ms -= times.total_ms();
  }
  reports.front().times.other_ms = std::max(0.0, left_ms);
  double ended_ms = now;
  for (std::size_t i = reports.size(); i-- > 0; ended_ms -= reports[i].times.total_ms())
    steps[i].ended_ms = ended_ms;
}

// How a run ends: stopped, finished, diverged or failed.

Outcome RunLoop::stop() {
  log::end_progress();
  record_ranks();
  const std::filesystem::path checkpoint = files_.checkpoints().path_of(progress_.step);
  save({});
  finish_saves();
  close_ledger(progress_.epoch + 1);
  const bool time_is_up = stop_policy_.time_is_up(now_s());
  const bool after_epoch = progress_.batch == 0 && stop_policy_.ends_after_epoch(progress_.epoch),
             planned = after_epoch || stop_policy_.ends_after(progress_.step);
  log::info(fmt::format("stopped after step {} {}; --resume auto continues from {}", progress_.step,
                        time_is_up    ? "because the allocation ends soon"
                        : after_epoch ? "as stop-after-epoch asked"
                        : planned     ? "as stop-after asked"
                                      : "on a signal",
                        checkpoint.string()));
  if (is_root()) log::info(observe::ledger_line(ledger_.records(), best_epoch()));
  record_end("stopped", time_is_up ? Ending::out_of_time : Ending::stopped,
             time_is_up    ? "the allocation ends soon"
             : after_epoch ? "stop-after-epoch"
             : planned     ? "stop-after"
                           : "a signal");
  return Outcome::stopped;
}

void RunLoop::finish() {
  finish_saves();
  control_.activity.enter(comm::Phase::ending);
  close_ledger(progress_.epoch);
  const double seconds = now_s() - spec_.started_s;
  const double peak = control_.max({static_cast<double>(peak_resident_bytes())}, "summary")[0];
  if (!is_root()) return;
  write_summary(record_end("finished", Ending::finished, ""), peak);
  log::info(fmt::format("{}, in {}; {:.0f} images/s; peak memory {} a rank",
                        observe::reached_line(progress_, newest_validation_, newest_average_),
                        human_seconds(seconds), statistics_.images_per_s(), human_bytes(peak)));
  if (statistics_.steps > 0) log::info(observe::times_line(statistics_));
  log::info(observe::ledger_line(ledger_.records(), best_epoch()));
  log::info(
      fmt::format("{}: config.toml decisions.toml metrics.jsonl binding.json summary.json "
                  "checkpoints/",
                  files_.directory().root().string()));
}

/// What came after the last epoch's record, too. Collective.
void RunLoop::close_ledger(std::uint64_t epoch) {
  files_.records().write(ledger_.record(epoch, progress_.step));
}

/// The exception continues to main, and is what counts: that nothing can be written any more, or
/// may be because a newer start has begun, is not said as well.
void RunLoop::record_failure(const std::exception& error) {
  const Ending ending = ending_of(error);
  const bool diverged = ending == Ending::diverged;
  try {
    if (diverged) finish_saves();  // all ranks find it in the same step
    files_.require_newest();
  } catch (const std::exception&) {
    return;
  }
  try {
    files_.records().write(ledger_.record_alone(progress_.epoch + 1, progress_.step));
    const auto end = record_end(diverged ? "diverged" : "failed", ending, error.what());
    if (is_root()) write_summary(end, static_cast<double>(peak_resident_bytes()));
  } catch (const std::exception&) {
    files_.leave_post_mortem({.reason = error.what(), .ending = ending});
  }
}

observe::EndRecord RunLoop::record_end(const std::string& status, Ending ending,
                                       const std::string& reason) {
  const observe::EndRecord end{.status = status,
                               .reason = reason,
                               .steps = progress_.step,
                               .epochs = progress_.epoch,
                               .seconds = now_s() - spec_.started_s,
                               .ending = ending};
  note_end(status, reason);
  files_.records().write(end);
  return end;
}

void RunLoop::write_summary(const observe::EndRecord& end, double peak_bytes) {
  observe::Summary summary{.model = config_.model,
                           .precision = to_string(config_.precision),
                           .batch = config_.batch,
                           .epochs = end.epochs,
                           .steps = end.steps,
                           .validation = newest_validation_,
                           .average = newest_average_,
                           .best = std::nullopt};
  if (progress_.best_epoch > 0)
    summary.best = {
        .top1 = progress_.best_score, .epoch = progress_.best_epoch, .score = progress_.score};
  summary.seconds = end.seconds;
  summary.seconds_to_first_step = statistics_.first_step_s;
  summary.images_per_s = statistics_.images_per_s();
  const double steps = static_cast<double>(std::max<std::uint64_t>(statistics_.steps, 1));
  summary.mean_step = statistics_.times / steps;
  summary.peak_resident_bytes = static_cast<std::uint64_t>(peak_bytes);
  summary.status = end.status;
  summary.ending = end.ending;
  summary.reason = end.reason;
  summary.samples = data_.rows_until(progress_.epoch, progress_.batch);
  summary.start = files_.start_record();
  summary.ended_ms = observe::unix_ms();
  summary.ledger = observe::sum_of(ledger_.records());
  if (summary.best)
    summary.ledger_to_best = observe::sum_until(ledger_.records(), summary.best->epoch);
  files_.write_summary(summary);
}

}  // namespace lockstep::train
