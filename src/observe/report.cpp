#include "lockstep/observe/report.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "observe/progress_bar.hpp"

namespace lockstep::observe {
namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

constexpr std::uint64_t slow_first_steps = 2;  // memory is touched, routines are chosen

std::uint64_t steps_left(const model::Progress& progress, const ProgressFacts& facts) {
  return facts.epochs * facts.steps_per_epoch -
         (progress.epoch * facts.steps_per_epoch + progress.batch);
}

std::uint64_t validations_left(const model::Progress& progress, const ProgressFacts& facts) {
  const std::uint64_t every = facts.validate_every;
  if (every == 0) return 0;
  const std::uint64_t off_beat = facts.epochs % every != 0 ? 1 : 0;  // the last epoch's
  return facts.epochs / every + off_beat - progress.epoch / every;
}

std::optional<double> remaining_s(const model::Progress& progress, const RunStatistics& seen,
                                  const ProgressFacts& facts) {
  const std::optional<double> step_s = seen.usual_step_s();
  if (!step_s) return std::nullopt;
  return static_cast<double>(steps_left(progress, facts)) * *step_s +
         static_cast<double>(validations_left(progress, facts)) * seen.validation_s;
}

/// Lines of at most `limit` characters, broken after semicolons; the last one ends without.
std::string wrapped(std::string_view text, std::size_t limit) {
  std::string lines;
  for (std::size_t width = 0; !text.empty();) {
    const std::string_view item = text.substr(0, std::min(text.find(';'), text.size() - 1) + 1);
    if (width > 0 && width + item.size() > limit) {
      lines += "\n ";
      width = 1;
    }
    lines += item;
    width += item.size();
    text.remove_prefix(item.size());
  }
  if (lines.ends_with(';')) lines.pop_back();
  return lines;
}

}  // namespace

void RunStatistics::add(const StepTimes& step, std::uint64_t step_rows) {
  ++steps;
  rows += step_rows;
  epoch_rows += step_rows;
  times += step;
  train_s += step.total_ms() / 1e3;
  if (steps <= slow_first_steps) {
    ++slow_steps;
    slow_s += step.total_ms() / 1e3;
  }
  epoch_s += step.total_ms() / 1e3;
  ++epoch_steps;
}

void RunStatistics::write(const Record& record) {
  if (const auto* step = std::get_if<StepRecord>(&record)) add(step->times, step->rows);
  if (const auto* epoch = std::get_if<EpochRecord>(&record)) {
    if (epoch->validation) validation_s = epoch->validation_ms / 1e3;
    begin_epoch();
  }
}

void RunStatistics::begin_epoch() {
  epoch_s = 0;
  epoch_rows = epoch_steps = 0;
}

double RunStatistics::images_per_s() const { return ratio(static_cast<double>(rows), train_s); }

double RunStatistics::epoch_images_per_s() const {
  return ratio(static_cast<double>(epoch_rows), epoch_s);
}

std::optional<double> RunStatistics::usual_step_s() const {
  if (steps <= slow_steps) return std::nullopt;
  return (train_s - slow_s) / static_cast<double>(steps - slow_steps);
}

std::string summarise(const config::Config& config, std::size_t columns) {
  std::string text = "configuration:";
  for (const config::ConfigKey* key : config::changed_keys(config))
    text += fmt::format(" {} = {};", key->name, key->get(config));
  if (text.ends_with(':')) text += " the defaults";
  return wrapped(text, columns);
}

bool is_of_classes(const Validation& validation) { return !std::isnan(validation.top1); }

std::string say_scores(const Scores& scores) {
  std::vector<std::string> said;
  for (const auto& [name, value] : scores) said.push_back(fmt::format("{} {:.5g}", name, value));
  return join(said, ", ");
}

std::string progress_line(const model::Progress& progress, const RunStatistics& seen,
                          const ProgressFacts& facts, int columns, bool colours) {
  const ProgressFigures figures{
      .epoch = progress.epoch + 1,
      .epochs = facts.epochs,
      .step = progress.batch,
      .steps = facts.steps_per_epoch,
      .loss = facts.loss,
      .top1 = ratio(static_cast<double>(progress.top1), static_cast<double>(progress.rows)),
      .lr = facts.lr,
      .images_per_s = seen.epoch_images_per_s(),
      .left_s = remaining_s(progress, seen, facts),
      .scores = facts.scores};
  return columns > 0 ? progress_bar(figures, columns, colours) : progress_text(figures);
}

std::string expected_time(double step_s, std::uint64_t steps, double validation_s,
                          std::uint64_t validations) {
  const double seconds =
      static_cast<double>(steps) * step_s + static_cast<double>(validations) * validation_s;
  std::string line = fmt::format("expected time: {} for {} of {:.{}f} ms", human_seconds(seconds),
                                 counted(steps, "step"), 1e3 * step_s, step_s < 0.1 ? 2 : 0);
  if (validations == 0) return line;
  return line + (validation_s > 0 ? " and " : ", without ") + counted(validations, "validation");
}

std::string epoch_line(const EpochRecord& record, std::uint64_t epochs, double seconds,
                       std::uint64_t of) {
  const std::string which = of > 1 ? fmt::format("epochs {} to {} of {}, the last",
                                                 record.epoch - of + 1, record.epoch, epochs)
                                   : fmt::format("epoch {}/{}", record.epoch, epochs);
  std::string line = fmt::format("{}: loss {:.4f}, {}", which, record.train_loss,
                                 record.train_scores.empty()
                                     ? fmt::format("top-1 {:.1f} %", 100 * record.train_top1)
                                     : say_scores(record.train_scores));
  const auto validated = [](const Validation& got) {
    return fmt::format("loss {:.4f}, {}", got.loss,
                       is_of_classes(got) ? fmt::format("top-1 {:.2f} %, top-5 {:.2f} %",
                                                        100 * got.top1, 100 * got.top5)
                                          : say_scores(got.scores));
  };
  if (record.validation) line += " | validation: " + validated(*record.validation);
  if (record.average) line += " | average: " + validated(*record.average);
  if (std::isfinite(record.images_per_s))
    line += fmt::format(" | {:.0f} images/s, {}", record.images_per_s, human_seconds(seconds));
  constexpr double telling = 0.1;  // as in StragglerWatch
  if (record.data_share > telling)
    line += fmt::format(", {:.0f} % of the steps waiting for data", 100 * record.data_share);
  return line;
}

std::string times_line(const RunStatistics& seen) {
  const double steps = static_cast<double>(std::max<std::uint64_t>(seen.steps, 1));
  const StepTimes mean = seen.times / steps;
  return fmt::format(
      "a step took {:.1f} ms: data {:.2f}, forward {:.1f}, backward {:.1f}, exposed communication "
      "{:.2f}, update {:.2f}, other {:.2f}",
      mean.total_ms(), mean.data_ms, mean.forward_ms, mean.backward_ms, mean.exposed_comm_ms,
      mean.update_ms, mean.other_ms);
}

std::string reached_line(const model::Progress& progress,
                         const std::optional<Validation>& validation,
                         const std::optional<Validation>& average) {
  std::string line =
      fmt::format("done: {}, {}", counted(progress.epoch, "epoch"), counted(progress.step, "step"));
  const auto shown = [&](const Validation& got) {
    return is_of_classes(got) ? fmt::format("{:.2f} %", 100 * got.top1) : say_scores(got.scores);
  };
  const bool by_top1 = progress.score.empty();
  const std::string name = by_top1 ? "top-1" : progress.score,
                    best = by_top1 ? fmt::format("{:.2f} %", 100 * progress.best_score)
                                   : fmt::format("{:.6g}", progress.best_score);
  if (validation) {
    line += fmt::format(", validation {}{}{}", is_of_classes(*validation) ? "top-1 " : "",
                        shown(*validation), average ? ", of the average " + shown(*average) : "");
    if (progress.best_epoch > 0)
      line += fmt::format(" (best {}{} in epoch {})", by_top1 ? "" : name + " ", best,
                          progress.best_epoch);
  } else if (progress.best_epoch > 0) {
    line += fmt::format(", best validation {} {} in epoch {}", name, best, progress.best_epoch);
  }
  return line;
}

RunLog::RunLog(const RunStatistics& statistics, const model::Progress& start, std::uint64_t epochs,
               std::uint64_t steps_per_epoch, std::uint64_t validate_every)
    : statistics_(statistics),
      progress_(start),
      epochs_(epochs),
      steps_per_epoch_(steps_per_epoch),
      validate_every_(validate_every) {}

void RunLog::write(const Record& record) {
  if (const auto* one = std::get_if<StepRecord>(&record)) step(*one);
  if (const auto* one = std::get_if<EpochRecord>(&record)) epoch(*one);
  if (!std::holds_alternative<EndRecord>(record)) return;
  say_epochs();
  log::end_progress();
}

void RunLog::step(const StepRecord& record) {
  progress_.step = record.step;
  ++progress_.batch;
  if (!record.loss_scale || !record.loss_scale->skipped) {  // as the epoch's means count
    const double rows = static_cast<double>(record.rows);
    progress_.rows += record.rows;
    if (record.scores.empty())
      progress_.top1 += static_cast<std::uint64_t>(std::llround(record.top1 * rows));
  }
  if (statistics_.steps == 1)
    log::info(fmt::format("first step done {:.2f} s after the start", statistics_.first_step_s));
  say_expected_time();
  if (short_epochs_ && log::columns() == 0) return;  // their lines show the progress
  log::progress(progress_line(progress_, statistics_,
                              {.epochs = epochs_,
                               .steps_per_epoch = steps_per_epoch_,
                               .lr = record.lr,
                               .loss = record.loss,
                               .validate_every = validate_every_,
                               .scores = record.scores},
                              log::columns(), log::colours()));
}

/// Once, as soon as some steps of usual length took long enough to tell.
void RunLog::say_expected_time() {
  constexpr double telling_s = 1;
  constexpr std::uint64_t telling_steps = 3;
  const RunStatistics& seen = statistics_;
  if (said_expected_ || seen.steps < seen.slow_steps + telling_steps ||
      seen.train_s - seen.slow_s < telling_s)
    return;
  said_expected_ = true;
  const ProgressFacts facts{
      .epochs = epochs_, .steps_per_epoch = steps_per_epoch_, .validate_every = validate_every_};
  if (steps_left(progress_, facts) == 0) return;
  log::info(expected_time(*seen.usual_step_s(), steps_left(progress_, facts), seen.validation_s,
                          validations_left(progress_, facts)));
}

void RunLog::epoch(const EpochRecord& record) {
  constexpr std::uint64_t first_lines = 10;
  constexpr double long_s = 1, every_s = 5;
  const double seconds = (record.steps_ms + record.validation_ms) / 1e3;
  unsaid_ = record;
  ++unsaid_epochs_;
  unsaid_s_ += seconds;
  short_epochs_ = said_lines_ >= first_lines && seconds < long_s;
  const bool last = record.epoch >= epochs_ || !record.bad_rows.empty();
  if (last || !short_epochs_ || unsaid_s_ >= every_s) say_epochs();
  if (!record.bad_rows.empty())
    log::warn(fmt::format("{} of epoch {} broken and replaced by others:",
                          counted(record.bad_rows.size(), "row"), record.epoch));
  for (const std::string& row : record.bad_rows) log::warn(row);
  progress_.epoch = record.epoch;
  progress_.batch = 0;
  progress_.rows = progress_.top1 = 0;
}

void RunLog::say_epochs() {
  if (!unsaid_) return;
  log::info(epoch_line(*unsaid_, epochs_, unsaid_s_, unsaid_epochs_));
  unsaid_.reset();
  unsaid_epochs_ = 0;
  unsaid_s_ = 0;
  ++said_lines_;
}

}  // namespace lockstep::observe
