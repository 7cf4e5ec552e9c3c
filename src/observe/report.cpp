#include "lockstep/observe/report.hpp"

#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/files.hpp"
#include "lockstep/base/json_text.hpp"
#include "lockstep/config/keys.hpp"

namespace lockstep::observe {
namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

double remaining_s(const model::Progress& progress, const RunStatistics& seen,
                   const ProgressFacts& facts) {
  const double steps_left =
      static_cast<double>(facts.epochs * facts.steps_per_epoch) -
      static_cast<double>(progress.epoch * facts.steps_per_epoch + progress.batch);
  const std::uint64_t every = facts.validate_every;
  const std::uint64_t off_beat = facts.epochs % every != 0 ? 1 : 0;  // the last epoch's
  const std::uint64_t validations_left = facts.epochs / every + off_beat - progress.epoch / every;
  return steps_left * ratio(seen.train_s, static_cast<double>(seen.steps)) +
         static_cast<double>(validations_left) * seen.validation_s;
}

/// Lines of at most 100 characters, broken after semicolons; the last one ends without.
std::string wrapped(std::string_view text) {
  constexpr std::size_t limit = 100;
  std::string lines;
  for (std::size_t width = 0; !text.empty();) {
    const std::string_view item = text.substr(0, text.find(';') + 1);
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
  times.data_ms += step.data_ms;
  times.forward_ms += step.forward_ms;
  times.backward_ms += step.backward_ms;
  times.exposed_comm_ms += step.exposed_comm_ms;
  times.update_ms += step.update_ms;
  train_s += step.total_ms() / 1e3;
  epoch_s += step.total_ms() / 1e3;
  epoch_data_ms += step.data_ms;
  ++epoch_steps;
}

void RunStatistics::begin_epoch() {
  epoch_s = epoch_data_ms = 0;
  epoch_rows = epoch_steps = 0;
}

double RunStatistics::images_per_s() const { return ratio(static_cast<double>(rows), train_s); }

double RunStatistics::epoch_images_per_s() const {
  return ratio(static_cast<double>(epoch_rows), epoch_s);
}

double RunStatistics::epoch_data_share() const { return ratio(epoch_data_ms / 1e3, epoch_s); }

std::string summarise(const config::Config& config) {
  const config::Config defaults;
  std::string text, given = "configuration:", left = "at their defaults:";
  for (const config::ConfigKey& key : config::config_keys()) {
    const bool usual = key.get(config) == key.get(defaults);
    (usual ? left : given) += fmt::format(" {} = {};", key.name, key.get(config));
  }
  return wrapped(given) + "\n" + wrapped(left);
}

std::string progress_line(const model::Progress& progress, const RunStatistics& seen,
                          const ProgressFacts& facts) {
  return fmt::format(
      "epoch {}/{}  step {}/{}  loss {:.4f}  top-1 {:.1f} %  lr {:.4g}  {:.0f} images/s  ETA {}",
      progress.epoch + 1, facts.epochs, progress.batch, facts.steps_per_epoch, facts.loss,
      100 * ratio(static_cast<double>(progress.top1), static_cast<double>(progress.rows)), facts.lr,
      seen.epoch_images_per_s(), human_seconds(remaining_s(progress, seen, facts)));
}

std::string epoch_line(const EpochRecord& record, std::uint64_t epochs, double seconds) {
  std::string line = fmt::format("epoch {}/{}: loss {:.4f}, top-1 {:.1f} %", record.epoch, epochs,
                                 record.train_loss, 100 * record.train_top1);
  if (record.validation)
    line += fmt::format(" | validation: loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} %",
                        record.validation->loss, 100 * record.validation->top1,
                        100 * record.validation->top5);
  if (record.average)
    line +=
        fmt::format(" | average: loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} %", record.average->loss,
                    100 * record.average->top1, 100 * record.average->top5);
  line += fmt::format(" | {:.0f} images/s, {}", record.images_per_s, human_seconds(seconds));
  constexpr double telling = 0.1;  // as in StragglerWatch
  if (record.data_share > telling)
    line += fmt::format(", {:.0f} % of the steps waiting for data", 100 * record.data_share);
  return line;
}

std::string times_line(const RunStatistics& seen) {
  const double steps = static_cast<double>(std::max<std::uint64_t>(seen.steps, 1));
  const StepTimes& sum = seen.times;
  return fmt::format(
      "a step took {:.1f} ms: data {:.2f}, forward {:.1f}, backward {:.1f}, exposed communication "
      "{:.2f}, update {:.2f}",
      sum.total_ms() / steps, sum.data_ms / steps, sum.forward_ms / steps, sum.backward_ms / steps,
      sum.exposed_comm_ms / steps, sum.update_ms / steps);
}

std::string reached_line(const model::Progress& progress,
                         const std::optional<Validation>& validation,
                         const std::optional<Validation>& average) {
  std::string line = fmt::format("done: {} epoch(s), {} steps", progress.epoch, progress.step);
  const double best = 100 * progress.best_top1;
  if (validation)
    line += fmt::format(
        ", validation top-1 {:.2f} %{} (best {:.2f} % in epoch {})", 100 * validation->top1,
        average ? fmt::format(", of the average {:.2f} %", 100 * average->top1) : "", best,
        progress.best_epoch);
  else if (progress.best_top1 >= 0)
    line += fmt::format(", best validation top-1 {:.2f} % in epoch {}", best, progress.best_epoch);
  return line;
}

std::string summary_json(const config::Config& config, const model::Progress& progress,
                         const RunStatistics& seen, const std::optional<Validation>& validation,
                         double seconds, std::size_t peak_bytes,
                         const std::optional<Validation>& average) {
  const double steps = static_cast<double>(std::max<std::uint64_t>(seen.steps, 1));
  nlohmann::ordered_json json = {{"model", config.model},
                                 {"precision", to_string(config.precision)},
                                 {"batch", config.batch},
                                 {"epochs", progress.epoch},
                                 {"steps", progress.step}};
  const auto add = [&json](const std::string& name, const std::optional<Validation>& of) {
    if (!of) return;
    json[name + "_loss"] = of->loss;
    json[name + "_top1"] = of->top1;
    json[name + "_top5"] = of->top5;
  };
  add("val", validation);
  add("ema", average);
  if (progress.best_top1 >= 0) {
    json["best_val_top1"] = progress.best_top1;
    json["best_epoch"] = progress.best_epoch;
  }
  json["seconds"] = seconds;
  json["seconds_to_first_step"] = seen.first_step_s;
  json["images_per_s"] = seen.images_per_s();
  json["mean_step"] = {{"data_ms", seen.times.data_ms / steps},
                       {"forward_ms", seen.times.forward_ms / steps},
                       {"backward_ms", seen.times.backward_ms / steps},
                       {"exposed_comm_ms", seen.times.exposed_comm_ms / steps},
                       {"update_ms", seen.times.update_ms / steps}};
  json["peak_resident_bytes"] = peak_bytes;
  return json_text(json, 2) + "\n";
}

}  // namespace lockstep::observe
