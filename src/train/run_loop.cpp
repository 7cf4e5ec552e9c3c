#include "train/run_loop.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "lockstep/base/build_id.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/base/join.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/train/specs.hpp"
#include "lockstep/train/stop_signal.hpp"

namespace lockstep::train {
namespace {

bool due(std::uint64_t count, std::uint64_t every) { return every != 0 && count % every == 0; }

/// Only the allocation of rank 0 counts.
StopSpec stop_spec(const RunSpec& spec, bool is_root) {
  return {.allocation_end_s = is_root ? spec.allocation.end_s : std::nullopt,
          .margin_s = spec.config.walltime.margin_s,
          .stop_after = spec.config.stop_after};
}

}  // namespace

RunLoop::RunLoop(const RunParts& parts, const model::Progress& progress)
    : spec_(parts.spec),
      config_(parts.spec.config),
      backend_(parts.backend),
      communicator_(parts.communicator),
      control_(parts.control),
      files_(parts.files),
      data_(parts.data),
      trainer_(parts.trainer),
      steps_per_epoch_(data_.steps_per_epoch()),
      schedule_(make_schedule(config_, steps_per_epoch_)),
      stop_policy_(stop_spec(spec_, is_root())),
      progress_(progress),
      audited_step_(progress.step),
      stragglers_(spec_.allocation.host, config_.data.train) {}

Outcome RunLoop::run() {
  while (progress_.epoch < config_.epochs) {
    while (progress_.batch < steps_per_epoch_) {
      if (step()) return stop();
      // At the end of an epoch finish_epoch() decides.
      if (due(progress_.step, config_.checkpoint.every_steps) && progress_.batch < steps_per_epoch_)
        save(files_.checkpoints().path_of(progress_.step));
    }
    if (!finish_epoch()) return stop();
  }
  write_summary();
  return Outcome::finished;
}

bool RunLoop::step() {
  files_.check_generation();
  comm::activity::begin_step(progress_.step + 1);
  const double began_s = now_s();
  const std::size_t global_rows = data_.global_rows(progress_.batch);
  const float lr =
      optim::learning_rate(schedule_, progress_.epoch * steps_per_epoch_ + progress_.batch);

  double mark_ms = now_ms();
  const data::Batch batch = data_.next(progress_.batch);
  const double data_ms = now_ms() - mark_ms;
  const std::vector<std::string> bad_rows = data_.bad_rows(batch);

  communicator_.begin_step(progress_.step + 1);
  StepReport report = trainer_.step(batch, global_rows, lr, [this] { return next_batch(); });
  data_.release(batch);
  report.times.data_ms = data_ms;

  mark_ms = now_ms();
  const StepTotals totals = add_up(report.metrics, bad_rows.size());
  report.times.exposed_comm_ms += now_ms() - mark_ms;
  check(totals.rows == static_cast<double>(global_rows), "a step has lost rows");
  stop_policy_.add_step(now_s() - began_s);

  if (totals.bad_rows) note_bad_rows(bad_rows);
  advance(totals, report.skipped());
  record_step(report, totals, lr);
  if (statistics_.steps > 1)
    stragglers_.add(report.times, control_);  // the first step is not typical
  if (due(progress_.step, config_.audit.every_steps)) audit();
  return totals.stop || stop_policy_.ends_after(progress_.step);
}

/// The next batch, if the loader has it and it is of this epoch.
std::optional<NextBatch> RunLoop::next_batch() { return data_.look_ahead(progress_.batch + 1); }

/// One small exchange serves the metrics and the decision to stop, which all ranks must make after
/// the same step.
RunLoop::StepTotals RunLoop::add_up(const backend::Metrics& mine, std::size_t bad_rows) {
  comm::activity::enter(comm::Phase::end_of_step);
  const auto sums =
      control_.sum({mine.loss, static_cast<double>(mine.rows), static_cast<double>(mine.top1),
                    wants_stop() ? 1.0 : 0.0, static_cast<double>(bad_rows)},
                   "step");
  return {.loss = sums[0],
          .rows = sums[1],
          .top1 = sums[2],
          .stop = sums[3] > 0,
          .bad_rows = sums[4] > 0};
}

/// All ranks keep the list, so that each of them decides alike and can write it to a checkpoint.
void RunLoop::note_bad_rows(const std::vector<std::string>& mine) {
  for (const std::string& row : comm::join_records(control_, mine, "bad rows"))
    progress_.bad_rows.push_back(row);
  require(progress_.bad_rows.size() <= config_.data.bad_rows_limit,
          fmt::format("{} rows of epoch {} are broken, more than data.bad-rows-limit = {}; the "
                      "newest: {}. Restore the files, or pack them again",
                      progress_.bad_rows.size(), progress_.epoch + 1, config_.data.bad_rows_limit,
                      progress_.bad_rows.back()));
}

void RunLoop::advance(const StepTotals& totals, bool skipped) {
  ++progress_.step;
  ++progress_.batch;
  if (skipped) return;  // where gradients overflow, the loss often does, too
  progress_.loss_sum += totals.loss;
  progress_.rows += static_cast<std::uint64_t>(totals.rows);
  progress_.top1 += static_cast<std::uint64_t>(totals.top1);
}

void RunLoop::record_step(const StepReport& report, const StepTotals& totals, float lr) {
  const double loss = totals.loss / totals.rows;
  require(std::isfinite(loss) || report.skipped(),
          fmt::format("the loss is {} at step {} (epoch {}): training diverged. Lower optim.lr or "
                      "lengthen optim.warmup-epochs; earlier checkpoints are in {}",
                      loss, progress_.step, progress_.epoch + 1,
                      files_.directory().checkpoints().string()));
  statistics_.add(report.times, static_cast<std::uint64_t>(totals.rows));
  if (statistics_.steps == 1) {
    statistics_.first_step_s = now_s() - spec_.started_s;
    // The loader's pages exist only once it has filled them.
    files_.write_binding(spec_.binding_report(data_.loader_memory()));
  }
  if (!is_root()) return;
  files_.add_metrics(observe::to_json(observe::StepRecord{.step = progress_.step,
                                                          .epoch = progress_.epoch + 1,
                                                          .loss = loss,
                                                          .lr = lr,
                                                          .times = report.times,
                                                          .loss_scale = report.loss_scale}));
  if (statistics_.steps == 1)
    log::info(fmt::format("first step done {:.2f} s after the start", statistics_.first_step_s));
  log::progress(observe::progress_line(progress_, statistics_,
                                       {.epochs = config_.epochs,
                                        .steps_per_epoch = steps_per_epoch_,
                                        .lr = lr,
                                        .loss = loss,
                                        .validate_every = config_.eval.every_epochs}));
}

bool RunLoop::finish_epoch() {
  const std::uint64_t epoch = progress_.epoch + 1;
  const bool last = epoch >= config_.epochs;
  const bool keep = last || due(epoch, config_.checkpoint.every_epochs) ||
                    due(progress_.step, config_.checkpoint.every_steps);
  observe::EpochRecord record = epoch_record();
  const double validation_began_s = now_s();
  if (data_.validation() && (last || due(epoch, config_.eval.every_epochs))) {
    // A run that dies in a long validation resumes from here and repeats only the validation.
    if (keep) save(files_.checkpoints().path_of(progress_.step));
    record.validation = validate();
    if (!record.validation) return false;
    statistics_.validation_s = now_s() - validation_began_s;
  }
  record_epoch(record, statistics_.epoch_s + now_s() - validation_began_s);
  const bool best = record.validation && record.validation->top1 > progress_.best_top1;
  begin_next_epoch();
  if (best) {
    progress_.best_top1 = record.validation->top1;
    progress_.best_epoch = epoch;
    // This comes first: no checkpoint may count a best one that does not exist.
    save_best();
  }
  if (keep) save(files_.checkpoints().path_of(progress_.step));
  return true;
}

/// Everything except the validation. Collective.
observe::EpochRecord RunLoop::epoch_record() const {
  const double steps = static_cast<double>(std::max<std::uint64_t>(1, statistics_.epoch_steps));
  const auto waits = control_.max(
      {statistics_.epoch_data_ms / steps, statistics_.epoch_data_share()}, "epoch's end");
  const double rows = static_cast<double>(progress_.rows);
  return {.epoch = progress_.epoch + 1,
          .step = progress_.step,
          .train_loss = progress_.loss_sum / rows,
          .train_top1 = static_cast<double>(progress_.top1) / rows,
          .validation = std::nullopt,
          .images_per_s = statistics_.epoch_images_per_s(),
          .bad_rows = progress_.bad_rows,
          .data_ms = waits[0],
          .data_share = waits[1]};
}

std::optional<observe::Validation> RunLoop::validate() {
  comm::activity::enter(comm::Phase::evaluation);
  const Evaluation result = evaluator().evaluate();
  if (result.stopped) return std::nullopt;
  require(std::isfinite(result.mean.loss),
          fmt::format("the validation's loss is {} after step {} (epoch {}): training diverged. "
                      "Lower optim.lr or lengthen optim.warmup-epochs",
                      result.mean.loss, progress_.step, progress_.epoch + 1));
  return newest_validation_ = result.mean;
}

/// Compiled when first needed.
Evaluator& RunLoop::evaluator() {
  if (evaluator_) return *evaluator_;
  EvaluatorSpec spec;
  spec.network = trainer_.network();
  // Normalised like the training images, whatever the validation set says.
  spec.program = trainer_.program_spec();
  if (config_.eval.batch != 0) spec.program.batch = config_.eval.batch;
  spec.augment = data_.validation_augment();
  spec.workers = data_.loader_threads();
  spec.bind_worker = spec_.bind_worker;
  spec.stop = [this] { return wants_stop(); };
  return evaluator_.emplace(spec, backend_, trainer_.parameters(), control_, *data_.validation());
}

void RunLoop::record_epoch(const observe::EpochRecord& record, double seconds) {
  if (!is_root()) return;
  log::end_progress();
  files_.add_metrics(observe::to_json(record));
  files_.flush_metrics();
  log::info(observe::epoch_line(record, config_.epochs, seconds));
  if (!record.bad_rows.empty())
    log::warn(fmt::format("{} row(s) of epoch {} were broken and replaced by others:\n  {}",
                          record.bad_rows.size(), record.epoch, join(record.bad_rows, "\n  ")));
}

void RunLoop::begin_next_epoch() {
  ++progress_.epoch;
  progress_.batch = 0;
  progress_.loss_sum = 0;
  progress_.rows = progress_.top1 = 0;
  progress_.bad_rows.clear();
  statistics_.begin_epoch();
}

void RunLoop::audit() {
  if (audited_step_ == progress_.step) return;
  trainer_.audit(control_, progress_.step);
  audited_step_ = progress_.step;
}

void RunLoop::save(const std::filesystem::path& path) {
  audit();
  comm::activity::enter(comm::Phase::checkpoint);
  const double began_s = now_s();
  model::CheckpointHeader header;
  header.progress = progress_;
  header.backend = backend_.description();
  header.build = build_id();
  header.world = static_cast<std::uint64_t>(control_.world());
  header.input = data_.input();
  header.exchange = trainer_.exchange().name();
  header.exchange_state = trainer_.exchange().save(control_);
  files_.save(path, std::move(header), trainer_.parameters());
  stop_policy_.add_save(now_s() - began_s);
}

void RunLoop::save_best() {
  save(files_.checkpoints().best_of(progress_.step));
  files_.name_best(progress_.step);
}

bool RunLoop::wants_stop() const { return stop_policy_.wants_stop(stop_requested(), now_s()); }

Outcome RunLoop::stop() {
  log::end_progress();
  const std::filesystem::path checkpoint = files_.checkpoints().path_of(progress_.step);
  save(checkpoint);
  log::info(fmt::format(
      "stopped after step {} {}; --resume auto continues from {}", progress_.step,
      stop_policy_.time_is_up(now_s()) ? "because the allocation ends soon" : "as asked",
      checkpoint.string()));
  return Outcome::stopped;
}

void RunLoop::write_summary() {
  comm::activity::enter(comm::Phase::ending);
  const double seconds = now_s() - spec_.started_s;
  const double peak = control_.max({static_cast<double>(peak_resident_bytes())}, "summary")[0];
  if (!is_root()) return;
  files_.write_summary(observe::summary_json(config_, progress_, statistics_, newest_validation_,
                                             seconds, static_cast<std::size_t>(peak)));
  log::info(fmt::format("{}, in {}; {:.0f} images/s; peak memory {} a rank",
                        observe::reached_line(progress_, newest_validation_),
                        human_seconds(seconds), statistics_.images_per_s(), human_bytes(peak)));
  if (statistics_.steps > 0) log::info(observe::times_line(statistics_));
  log::info(fmt::format("{}: config.toml metrics.jsonl binding.json summary.json checkpoints/",
                        files_.directory().root().string()));
}

}  // namespace lockstep::train
