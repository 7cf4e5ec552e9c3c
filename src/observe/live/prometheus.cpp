#include "observe/live/prometheus.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/text/prometheus_page.hpp"
#include "lockstep/observe/report.hpp"

namespace lockstep::observe {
namespace {

using Page = PrometheusPage;

constexpr double s_of(double ms) { return ms / 1000; }

/// Visits a record's fields and makes samples of the parts of a step: of each one's time, or of the
/// rank that took longest for it.
struct PartSamples {
  Page& page;

  void operator()(std::string_view name, double ms, Form) const {
    name.remove_suffix(std::string_view("_ms").size());
    page.sample(s_of(ms), {{"part", std::string(name)}});
  }
  void operator()(std::string_view name, const Spread& spread) const {
    page.sample(s_of(spread.max_ms),
                {{"part", std::string(name)}, {"rank", std::to_string(spread.slowest)}});
  }
  void operator()(std::string_view, std::uint64_t) const {}
  void later(std::string_view name, const auto& value, auto... form) const {
    (*this)(name, value, form...);
  }
  void stamp(std::string_view, std::uint64_t) const {}
};

void show(Page& page, const StartRecord& start) {
  page.metric("run_info", "gauge", "What runs; always 1.");
  page.sample(1, {{"model", start.model},
                  {"precision", start.precision},
                  {"job", start.job},
                  {"build", start.build},
                  {"host", start.hosts.empty() ? "" : start.hosts.front()}});
  page.gauge("start_timestamp_seconds", "When this start of the run began.",
             s_of(static_cast<double>(start.time_ms)));
  page.gauge("ranks", "Ranks of this start.", static_cast<double>(start.ranks));
  page.gauge("planned_epochs", "Epochs that the run will have.", static_cast<double>(start.epochs));
  page.gauge("steps_per_epoch", "Steps of an epoch.", static_cast<double>(start.steps_per_epoch));
}

/// A gauge for each score: train_mAP, validation_micro_F1.
void show(Page& page, const std::string& before, const char* help, const Scores& scores) {
  for (const auto& [score, value] : scores) {
    std::string name = before + score;
    std::ranges::replace(name, '-', '_');
    page.gauge(name, help, value);
  }
}

void show(Page& page, const StepRecord& step) {
  page.counter("steps_total", "Steps that the run has done.", static_cast<double>(step.step));
  page.counter("images_total", "Rows that training has seen.", static_cast<double>(step.samples));
  page.gauge("epoch", "The epoch of the last step, from 1.", static_cast<double>(step.epoch));
  page.gauge("loss", "Loss of the last step's global batch.", step.loss);
  if (step.scores.empty())
    page.gauge("top1_ratio", "Share of the last step's rows that were right.", step.top1);
  show(page, "", "Of the last step.", step.scores);
  page.gauge("learning_rate", "Of the last step.", double{step.lr});
  if (step.gradient_norm)
    page.gauge("gradient_norm", "Of the last step's gradient.", *step.gradient_norm);
  if (step.trust)
    page.gauge("trust_ratio", "The median of the last step's layers.", step.trust->median);
  if (step.loss_scale) {
    page.gauge("loss_scale", "After the last step.", double{step.loss_scale->scale});
    page.counter("skipped_steps_total", "Steps that an overflow skipped.",
                 static_cast<double>(step.loss_scale->skipped_steps));
  }
  page.gauge("resident_memory_bytes", "Of rank 0.", static_cast<double>(step.memory_bytes));
  page.gauge("last_step_timestamp_seconds", "When the last step ended.",
             s_of(static_cast<double>(step.time_ms)));
}

void show(Page& page, const EpochRecord& epoch) {
  page.gauge("train_loss", "Mean loss of the last epoch.", epoch.train_loss);
  if (epoch.train_scores.empty())
    page.gauge("train_top1_ratio", "Share of the last epoch's rows that were right.",
               epoch.train_top1);
  show(page, "train_", "Of the last epoch.", epoch.train_scores);
  const auto validated = [&](std::string_view of, const Validation& got) {
    page.gauge(fmt::format("{}_loss", of), "Mean loss over the validation set.", got.loss);
    show(page, fmt::format("{}_", of), "Of the validation set.", got.scores);
    if (!is_of_classes(got)) return;
    page.gauge(fmt::format("{}_top1_ratio", of), "Share of the set that was right.", got.top1);
    page.gauge(fmt::format("{}_top5_ratio", of), "Share with the label among the first five.",
               got.top5);
  };
  if (epoch.validation) validated("validation", *epoch.validation);
  if (epoch.average) validated("average_validation", *epoch.average);
}

void show(Page& page, const RanksRecord& ranks) {
  page.metric("slowest_rank_step_part_seconds", "gauge",
              "Mean time a step in the last epoch, of the rank with the most.");
  RanksRecord::fields(ranks, PartSamples{page});
}

void show(Page& page, const LedgerSum& used) {
  if (used.records == 0) return;
  page.counter("core_hours_total", "Core-hours of this start.", used.core_hours);
  page.counter("gpu_hours_total", "GPU-hours of this start.", used.gpu_hours);
  if (used.cost) page.counter("cost_total", "By the keys cost.*, of this start.", *used.cost);
  page.metric("energy_joules_total", "counter", "Energy by its source, of this start.");
  for (const EnergyFigure& figure : used.energy)
    if (figure.joules) page.sample(*figure.joules, {{"source", figure.source}});
}

}  // namespace

struct PrometheusText::State {
  std::optional<StartRecord> start;
  std::optional<StepRecord> step;
  std::optional<EpochRecord> epoch;
  std::optional<RanksRecord> ranks;
  std::optional<CheckpointRecord> checkpoint;
  StepTimes spent;  // by the steps of this start
  std::uint64_t checkpoints = 0, bad_rows = 0;
  double blocked_ms = 0, validation_ms = 0;
  std::vector<LedgerRecord> ledger;
};

PrometheusText::PrometheusText() : state_(std::make_unique<State>()) {}
PrometheusText::~PrometheusText() = default;

void PrometheusText::write(const Record& record) {
  const std::scoped_lock lock(mutex_);
  std::visit([this](const auto& one) { take(one); }, record);
}

void PrometheusText::take(const StartRecord& record) { state_->start = record; }

void PrometheusText::take(const StepRecord& record) {
  state_->step = record;
  state_->spent += record.times;
}

void PrometheusText::take(const EpochRecord& record) {
  state_->bad_rows += record.bad_rows.size();
  state_->validation_ms += record.validation_ms;
  state_->epoch = record;
}

void PrometheusText::take(const RanksRecord& record) { state_->ranks = record; }

void PrometheusText::take(const CheckpointRecord& record) {
  ++state_->checkpoints;
  state_->blocked_ms += record.blocked_ms;
  state_->checkpoint = record;
}

void PrometheusText::take(const LedgerRecord& record) { state_->ledger.push_back(record); }

std::string PrometheusText::text() const {
  const std::scoped_lock lock(mutex_);
  const State& now = *state_;
  if (!now.start) return "";
  Page page({{"run_id", now.start->run_id}});
  show(page, *now.start);
  if (now.step) show(page, *now.step);
  page.metric("step_part_seconds_total", "counter",
              "Rank 0's time in the parts of the steps of this start.");
  StepTimes::fields(now.spent, PartSamples{page});
  page.counter("validation_seconds_total", "Time in validations, in this start.",
               s_of(now.validation_ms));
  page.counter("bad_rows_total", "Rows that were replaced, in this start.",
               static_cast<double>(now.bad_rows));
  if (now.epoch) show(page, *now.epoch);
  if (now.ranks) show(page, *now.ranks);
  page.counter("checkpoints_total", "Checkpoints that came to the disk, in this start.",
               static_cast<double>(now.checkpoints));
  page.counter("checkpoint_blocked_seconds_total", "Time that training waited for checkpoints.",
               s_of(now.blocked_ms));
  show(page, sum_of(now.ledger));
  if (now.checkpoint)
    page.gauge("checkpoint_step", "Step of the newest checkpoint on the disk.",
               static_cast<double>(now.checkpoint->step));
  return std::move(page.text);
}

}  // namespace lockstep::observe
