#include "train/loop/run_loop.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/build_id.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/model/network_text.hpp"
#include "lockstep/train/ending/stop_signal.hpp"
#include "lockstep/train/specs.hpp"
#include "train/ending/stop_policy.hpp"

namespace lockstep::train {
namespace {

/// Only the allocation of rank 0 counts.
StopSpec stop_spec(const RunSpec& spec, bool is_root) {
  return {.allocation_end_s = is_root ? spec.allocation.end_s : std::nullopt,
          .margin_s = spec.config.walltime.margin_s,
          .stop_after = spec.config.stop_after,
          .stop_after_epoch = spec.config.stop_after_epoch};
}

/// What a loss is that is not finite.
const char* strange_loss(double loss) { return std::isnan(loss) ? "not a number" : "infinite"; }

std::string diverged_at(double loss, const model::Progress& at, const RunFiles& files) {
  const bool saved = !files.checkpoints().newest_first().empty();
  return fmt::format(
      "the loss is {} at step {} (epoch {}): training diverged. Lower optim.lr or lengthen "
      "optim.warmup-epochs{}",
      strange_loss(loss), at.step, at.epoch + 1,
      saved ? "; earlier checkpoints are in " + files.directory().checkpoints().string() : "");
}

}  // namespace

RunLoop::RunLoop(const RunParts& parts, const model::Progress& progress)
    : spec_(parts.spec),
      config_(parts.config),
      backend_(parts.backend),
      communicator_(parts.communicator),
      control_(parts.control),
      files_(parts.files),
      data_(parts.data),
      trainer_(parts.trainer),
      ledger_(parts.ledger),
      whole_(parts.whole),
      steps_per_epoch_(data_.steps_per_epoch()),
      schedule_(make_schedule(config_, steps_per_epoch_)),
      score_(score_kind(data_.input().task, config_.eval.best)),
      stop_policy_(stop_spec(spec_, is_root())),
      save_clock_(60 * config_.checkpoint.every_minutes, now_s()),
      saves_(config_.checkpoint.every_steps),
      progress_(progress),
      audited_step_(progress.step),
      rank_times_(spec_.nodes, config_.data.train) {
  progress_.score = kept_name(score_);
  files_.records().subscribe(statistics_);
  if (!is_root()) return;
  ledger_.add_earlier(files_.directory().metrics());
  log_.emplace(statistics_, progress_, config_.epochs, steps_per_epoch_,
               data_.validation() ? config_.eval.every_epochs : 0);
  files_.records().subscribe(*log_);
}

Outcome RunLoop::run() {
  try {
    return run_to_end();
  } catch (const std::exception& error) {
    record_failure(error);
    throw;
  }
}

Outcome RunLoop::run_to_end() {
  while (progress_.epoch < config_.epochs) {
    while (progress_.batch < steps_per_epoch_) {
      if (step()) return stop();
      // At the end of an epoch finish_epoch() decides.
      if (launched_.empty() && saves_.due(progress_.step) && progress_.batch < steps_per_epoch_)
        save_or_postpone();
    }
    if (!finish_epoch()) return stop();
    if (progress_.epoch < config_.epochs && stop_policy_.ends_after_epoch(progress_.epoch))
      return stop();
  }
  finish();
  return Outcome::finished;
}

/// The first step also compiles, so another one is judged.
void RunLoop::judge_launcher(double step_s) const {
  if (!spec_.allocation.patience_s) return;
  const double state_bytes =
      static_cast<double>(2 * sizeof(float) * trainer_.parameters().layout().size);
  // One may be on its way to the disk, and a best one may wait for its turn.
  const std::string warning =
      warn_of_launcher(*spec_.allocation.patience_s, step_s, 3 * state_bytes);
  if (!warning.empty()) log::warn(warning);
}

/// All ranks keep the list, so that each of them decides alike and can write it to a checkpoint.
void RunLoop::note_bad_rows(const std::vector<std::string>& mine) {
  for (const std::string& row : comm::join_records(control_, mine, "bad rows"))
    progress_.bad_rows.push_back(row);
  require(progress_.bad_rows.size() <= config_.data.bad_rows_limit,
          fmt::format("{} rows of epoch {} are broken, more than data.bad-rows-limit = {}; the "
                      "newest: {}. Restore the files, or pack them again",
                      progress_.bad_rows.size(), progress_.epoch + 1, config_.data.bad_rows_limit,
                      progress_.bad_rows.back()),
          Ending::bad_data);
}

void RunLoop::advance(const StepTotals& totals, bool skipped) {
  ++progress_.step;
  ++progress_.batch;
  if (skipped) return;  // where gradients overflow, the loss often does, too
  progress_.loss_sum += totals.loss;
  progress_.rows += static_cast<std::uint64_t>(totals.rows);
  progress_.top1 += static_cast<std::uint64_t>(totals.top1);
  for (std::size_t i = 0; i < totals.sums.size(); ++i) progress_.sums[i] += totals.sums[i];
}

void RunLoop::record_step(const StepReport& report, const StepTotals& totals,
                          const LaunchedStep& step) {
  const double loss = totals.loss / totals.rows;
  if (!std::isfinite(loss) && !report.skipped())
    throw Error(diverged_at(loss, progress_, files_), Ending::diverged);
  if (statistics_.steps == 0) statistics_.first_step_s = now_s() - spec_.started_s;
  observe::StepRecord record{.step = progress_.step,
                             .epoch = progress_.epoch + 1,
                             .loss = loss,
                             .lr = step.lr,
                             .times = report.times};
  record.time_ms = observe::unix_ms_of(step.ended_ms);
  record.gradient_norm = report.gradient_norm;
  if (report.trust)
    record.trust = observe::TrustSpread{.smallest = report.trust->smallest,
                                        .median = report.trust->median,
                                        .largest = report.trust->largest};
  if (report.loss_scale)
    record.loss_scale = observe::LossScaling{.scale = report.loss_scale->scale,
                                             .skipped_steps = report.loss_scale->skipped,
                                             .skipped = report.skipped()};
  if (is_of_classes())
    record.top1 = totals.top1 / totals.rows;
  else
    record.scores = step_scores(data_.input().task, totals.sums);
  record.rows = static_cast<std::uint64_t>(totals.rows);
  record.samples = data_.rows_until(progress_.epoch, progress_.batch);
  record.images_per_s = 1e3 * totals.rows / report.times.total_ms();
  if (is_root()) record.memory_bytes = resident_bytes();
  files_.records().write(record);
  if (statistics_.steps > 1) return;
  // The loader's pages exist only once it has filled them.
  files_.write_binding(spec_.binding_report(data_.loader_memory()));
  step_ended_ms_.reset();
}

bool RunLoop::finish_epoch() {
  const std::uint64_t epoch = progress_.epoch + 1;
  const bool last = epoch >= config_.epochs;
  const bool keep =
      last || due(epoch, config_.checkpoint.every_epochs) || saves_.due(progress_.step);
  observe::EpochRecord record = epoch_record();
  const double validation_began_ms = now_ms();
  const bool judged = last || stop_policy_.ends_after_epoch(epoch);
  if (data_.validation() && (judged || due(epoch, config_.eval.every_epochs))) {
    // A run that dies in a long validation resumes from here and repeats only the validation.
    if (keep) save_or_postpone();
    if (!validate(record)) return false;
    record.validation_ms = now_ms() - validation_began_ms;
  }
  record_epoch(record);
  files_.records().write(ledger_.record(epoch, progress_.step));
  // Where an average is kept, it is what will be used.
  std::optional<observe::Validation> decisive = record.validation;
  if (record.average) decisive = *record.average;
  const std::optional<double> score = decisive ? score_in(*decisive, score_) : std::nullopt;
  const bool best = score && !std::isnan(*score) &&
                    (progress_.best_epoch == 0 || score_.is_better(progress_.best_score, *score));
  begin_next_epoch();
  if (best) {
    progress_.best_score = *score;
    progress_.best_epoch = epoch;
  }
  if (is_root() && last && decisive && progress_.best_epoch == 0)
    log::warn(fmt::format("no validation has a {} (eval.best): there is no best.h5", score_.name));
  if (best || keep) saves_.learn(control_.any(files_.saving(), "checkpoint"));
  // A best state comes only once, and a last one is waited for.
  if (best || last)
    save({.newest = keep, .best = best});
  else if (keep)
    save_or_postpone();
  step_ended_ms_.reset();
  return true;
}

/// Everything except the validation. Collective.
observe::EpochRecord RunLoop::epoch_record() {
  const double rows = static_cast<double>(progress_.rows);
  observe::EpochRecord record{
      .epoch = progress_.epoch + 1,
      .step = progress_.step,
      .train_loss = progress_.loss_sum / rows,
      .train_top1 = is_of_classes() ? static_cast<double>(progress_.top1) / rows
                                    : std::numeric_limits<double>::quiet_NaN(),
      .validation = std::nullopt,
      // A start that only validates has no step to measure.
      .images_per_s = statistics_.epoch_steps > 0 ? statistics_.epoch_images_per_s()
                                                  : std::numeric_limits<double>::quiet_NaN(),
      .bad_rows = progress_.bad_rows};
  record.train_scores = step_scores(data_.input().task, progress_.sums);
  record.steps_ms = statistics_.epoch_s * 1e3;
  if (const auto ranks = record_ranks()) {
    record.data_ms = ranks->data.max_ms;
    record.data_share =
        record.data_ms * static_cast<double>(ranks->steps) / std::max(record.steps_ms, 1e-3);
  }
  return record;
}

/// On rank 0 what it has recorded, if there was anything. Collective.
std::optional<observe::RanksRecord> RunLoop::record_ranks() {
  std::optional<observe::RanksRecord> record = rank_times_.end_epoch(control_);
  if (!record) return record;
  record->epoch = progress_.epoch + 1;
  record->step = progress_.step;
  files_.records().write(*record);
  return record;
}

bool RunLoop::validate(observe::EpochRecord& record) {
  const reduce::Settled settled(trainer_.exchange());
  record.validation = evaluate();
  if (!record.validation) return false;
  if (trainer_.keeps_average()) {
    backend_.swap_average(trainer_.parameters());
    record.average = evaluate();
    backend_.swap_average(trainer_.parameters());
    if (!record.average) return false;
  }
  newest_validation_ = record.validation;
  newest_average_ = record.average;
  return true;
}

/// Empty if the ranks agreed to stop.
std::optional<observe::Validation> RunLoop::evaluate() {
  control_.activity.enter(comm::Phase::evaluation);
  const Evaluation result = whole_.pipeline.is_whole() ? evaluator().evaluate() : evaluate_stages();
  if (result.stopped) return std::nullopt;
  if (!std::isfinite(result.mean.loss))
    throw Error(
        fmt::format("the validation's loss is {} after step {} (epoch {}): training diverged. "
                    "Lower optim.lr or lengthen optim.warmup-epochs",
                    strange_loss(result.mean.loss), progress_.step, progress_.epoch + 1),
        Ending::diverged);
  return result.mean;
}

/// Compiled when first needed.
Evaluator& RunLoop::evaluator() {
  if (evaluator_) return *evaluator_;
  return evaluator_.emplace(evaluator_spec(), backend_, trainer_.parameters(), control_,
                            *data_.validation());
}

/// By the first stages, which get the weights of all others for it. Their memory is free again
/// afterwards.
Evaluation RunLoop::evaluate_stages() {
  EvaluatorSpec spec = evaluator_spec();
  const auto whole = gather_whole(whole_, trainer_.parameters(), Gathered::weights);
  if (!whole) return Evaluator(spec, backend_.device(), control_, *data_.validation()).evaluate();
  return Evaluator(spec, backend_, *whole, control_, *data_.validation()).evaluate();
}

EvaluatorSpec RunLoop::evaluator_spec() const {
  EvaluatorSpec spec;
  spec.network = whole_.network;
  // Normalised like the training images, whatever the validation set says.
  spec.program = trainer_.program_spec();
  spec.program.slots = 1;
  if (config_.eval.batch != 0) spec.program.batch = config_.eval.batch;
  spec.augment = data_.validation_augment();
  spec.program.tile = {};  // each rank validates other images, and those whole
  spec.program.tiles = nullptr;
  spec.replicas = spec_.grid.sharers;
  spec.whole_blocks = config_.shards > 0;
  spec.workers = data_.loader_threads();
  spec.bind_worker = spec_.bind_worker;
  spec.stop = [this] { return wants_stop(); };
  return spec;
}

void RunLoop::record_epoch(const observe::EpochRecord& record) {
  files_.records().write(record);
  files_.request_flush_of_metrics();
}

void RunLoop::begin_next_epoch() {
  ++progress_.epoch;
  progress_.batch = 0;
  progress_.loss_sum = 0;
  progress_.rows = progress_.top1 = 0;
  progress_.sums = {};
  progress_.bad_rows.clear();
}

void RunLoop::audit() {
  if (audited_step_ == progress_.step) return;
  trainer_.audit(control_, progress_.step);
  audited_step_ = progress_.step;
}

void RunLoop::save(KeptAs as) {
  const double began_s = now_s();
  audit();
  control_.activity.enter(comm::Phase::checkpoint);
  model::CheckpointHeader header;
  header.progress = progress_;
  header.network = model::network_text(whole_.network);
  header.preparation = infer::preparation(config_, data_.input());
  header.backend = backend_.description();
  header.build = build_id();
  header.world = static_cast<std::uint64_t>(spec_.grid.ranks());
  header.replicas = static_cast<std::uint64_t>(spec_.grid.replicas.count);
  header.placement = spec_.nodes.placement();
  header.input = data_.input();
  header.exchange = trainer_.exchange().name();
  reduce::StateOutline outline = trainer_.exchange().outline();
  header.exchange_state = std::move(outline.texts);
  std::vector<model::ExchangePart> parts;
  for (const auto& [name, bytes] : outline.parts) parts.push_back({.name = name, .bytes = bytes});
  // It is then made in the place of a step's values.
  if (is_root() && config_.memory_limit > 0 && files_.copies() == 0) backend_.release_idle_memory();
  {
    const reduce::Settled settled(trainer_.exchange());
    // Rank 0 writes, and is in the first replica.
    const bool gathers = !whole_.pipeline.is_whole() && spec_.grid.sharers.index == 0;
    const auto whole =
        gathers ? gather_whole(whole_, trainer_.parameters(), Gathered::state) : nullptr;
    files_.begin_save(as, std::move(header), whole ? *whole : trainer_.parameters(),
                      std::move(parts));
  }
  trainer_.exchange().save(control_, [this](std::string_view bytes) { files_.add_to_save(bytes); });
  files_.end_save(began_s);
  step_ended_ms_.reset();
  if (!as.newest) return;
  saves_.saved();
  save_clock_.saved(now_s());
}

/// All ranks do the same.
void RunLoop::save_or_postpone() {
  if (!saves_.writing()) return save({});
  saves_.postpone();
  if (is_root() && !std::exchange(said_postponed_, true))
    log::info(
        fmt::format("step {}: a checkpoint is due while the one before it is still being "
                    "written; the newest state is saved as soon as that is on the disk",
                    progress_.step));
}

/// At the end of an allocation, the one that is being written must still get to the disk.
void RunLoop::look_at_saves() {
  stop_policy_.add_save(files_.saving_s());
  for (const observe::CheckpointRecord& one : files_.record_saved())
    stop_policy_.add_save((one.blocked_ms + one.written_ms) / 1e3);
}

/// The run ends only when its last state is on the disk. Collective: no rank may end before, for a
/// launcher would end rank 0, too.
void RunLoop::finish_saves() {
  control_.activity.enter(comm::Phase::checkpoint);
  files_.finish_saving();
  look_at_saves();
  control_.barrier("the last checkpoint");
}

bool RunLoop::wants_stop() const { return stop_policy_.wants_stop(stop_requested(), now_s()); }

}  // namespace lockstep::train
