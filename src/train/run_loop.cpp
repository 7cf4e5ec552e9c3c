#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/core.h>

#include "lockstep/base/build_id.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/base/join.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/train/specs.hpp"
#include "lockstep/train/stop_signal.hpp"
#include "train/run_impl.hpp"

namespace lockstep::train {
namespace {

bool due(std::uint64_t count, std::uint64_t every) { return every != 0 && count % every == 0; }

}  // namespace

Outcome Run::Impl::loop() {
  if (at.epoch >= config.epochs) {
    log::info(fmt::format("nothing is left to do: all {} epochs are done", config.epochs));
    return Outcome::finished;
  }
  while (at.epoch < config.epochs) {
    while (at.batch < steps_per_epoch) {
      if (step()) return stop();
      // At an epoch's end finish_epoch() decides.
      if (due(at.step, config.checkpoint.every_steps) && at.batch < steps_per_epoch)
        save(checkpoints.path_of(at.step));
    }
    if (!finish_epoch()) return stop();
  }
  conclude();
  return Outcome::finished;
}

Outcome Run::Impl::stop() {
  log::end_progress();
  save(checkpoints.path_of(at.step));
  log::info(fmt::format("stopped behind step {} {}; {} goes on from there with --resume auto",
                        at.step, time_is_up() ? "because the allocation ends soon" : "as asked",
                        checkpoints.path_of(at.step).string()));
  return Outcome::stopped;
}

bool Run::Impl::time_is_up() const {
  if (!speaker() || !spec.allocation.end_s) return false;
  // Two checkpoints: one may be due anyway when the time has come.
  const double needed_s = config.walltime.margin_s + 2 * longest_step_s + 2 * longest_save_s;
  return now_s() + needed_s > *spec.allocation.end_s;
}

bool Run::Impl::asked_to_stop() const { return stop_requested() || time_is_up(); }

void Run::Impl::look_for_newer_start() {
  if (!generation || now_s() - looked_s < 1) return;
  looked_s = now_s();
  generation->require_newest();
}

std::optional<NextBatch> Run::Impl::next_batch() {
  if (at.batch + 1 >= steps_per_epoch || !loader->ready()) return std::nullopt;
  upcoming = loader->next();
  return NextBatch{*upcoming, sampler->slice(at.batch + 1).global_rows};
}

bool Run::Impl::step() {
  look_for_newer_start();
  comm::activity::begin_step(at.step + 1);
  const double began_s = now_s();
  const data::Slice slice = sampler->slice(at.batch);
  const float lr = optim::learning_rate(schedule, at.epoch * steps_per_epoch + at.batch);
  double mark = now_ms();
  const data::Batch batch = upcoming ? *std::exchange(upcoming, std::nullopt) : loader->next();
  check(batch.index == at.batch, "the loader is at another batch than the trainer");
  const double data_ms = now_ms() - mark;

  std::vector<std::string> bad_rows;
  for (const data::Replaced& row : loader->replaced(batch)) bad_rows.push_back(row.what);
  communicator.begin_step(at.step + 1);
  StepReport report = trainer->step(batch, slice.global_rows, lr, [this] { return next_batch(); });
  loader->release(batch);

  // One small exchange serves the metrics and the decision to stop, which all ranks must take
  // behind the same step.
  comm::activity::enter(comm::Phase::end_of_step);
  mark = now_ms();
  const auto sums = control.sum({report.metrics.loss, static_cast<double>(report.metrics.rows),
                                 static_cast<double>(report.metrics.top1),
                                 asked_to_stop() ? 1.0 : 0.0, static_cast<double>(bad_rows.size())},
                                "step");
  report.times.data_ms = data_ms;
  report.times.exposed_comm_ms += now_ms() - mark;
  check(sums[1] == static_cast<double>(slice.global_rows), "a step has lost rows");
  longest_step_s = std::max(longest_step_s, now_s() - began_s);

  if (sums[4] > 0) note_bad_rows(bad_rows);
  ++at.step;
  ++at.batch;
  if (!report.skipped()) {  // where gradients overflow, the loss often does
    at.loss_sum += sums[0];
    at.rows += slice.global_rows;
    at.top1 += static_cast<std::uint64_t>(sums[2]);
  }
  count_step(report, sums[0] / sums[1], lr);
  if (statistics.steps > 1) stragglers.add(report.times, control);  // the first is like no other
  if (due(at.step, config.audit.every_steps)) audit();
  return sums[3] > 0 || at.step == config.stop_after;
}

void Run::Impl::audit() {
  if (audited_step == at.step) return;
  trainer->audit(control, at.step);
  audited_step = at.step;
}

/// All ranks keep the list, so that any checkpoint and every rank's verdict can go by it.
void Run::Impl::note_bad_rows(const std::vector<std::string>& mine) {
  for (const std::string& of_rank : control.gather(join(mine, "\n"), "bad rows"))
    for (std::size_t begin = 0; begin < of_rank.size();) {
      const std::size_t end = std::min(of_rank.find('\n', begin), of_rank.size());
      at.bad_rows.push_back(of_rank.substr(begin, end - begin));
      begin = end + 1;
    }
  require(at.bad_rows.size() <= config.data.bad_rows_limit,
          fmt::format("{} rows of epoch {} are broken, more than data.bad-rows-limit = {}; the "
                      "newest: {}. Restore the files, or pack them again",
                      at.bad_rows.size(), at.epoch + 1, config.data.bad_rows_limit,
                      at.bad_rows.back()));
}

void Run::Impl::count_step(const StepReport& report, double loss, float lr) {
  require(std::isfinite(loss) || report.skipped(),
          fmt::format("the loss is {} at step {} (epoch {}): training diverged. Lower optim.lr or "
                      "lengthen optim.warmup-epochs; earlier checkpoints are in {}",
                      loss, at.step, at.epoch + 1, directory.checkpoints().string()));
  statistics.add(report.times, sampler->slice(at.batch - 1).global_rows);
  if (statistics.steps == 1) {
    statistics.first_step_s = now_s() - spec.started_s;
    report_loader();
  }
  if (!speaker()) return;
  metrics->add(
      to_json(StepRecord{at.step, at.epoch + 1, loss, lr, report.times, report.loss_scale}));
  if (statistics.steps == 1)
    log::info(fmt::format("first step done {:.2f} s after the start", statistics.first_step_s));
  log::progress(progress_line(
      at, statistics, {config.epochs, steps_per_epoch, lr, loss, config.eval.every_epochs}));
}

/// The loader's pages are there only when it has filled them.
void Run::Impl::report_loader() {
  const std::string binding = spec.binding_report(loader->memory());
  if (speaker()) write_text_atomically(directory.binding(), binding);
}

/// But for the validation. Collective.
EpochRecord Run::Impl::epoch_record() const {
  const double steps = static_cast<double>(std::max<std::uint64_t>(1, statistics.epoch_steps));
  const auto waits =
      control.max({statistics.epoch_data_ms / steps, statistics.epoch_data_share()}, "epoch's end");
  return {.epoch = at.epoch + 1,
          .step = at.step,
          .train_loss = at.loss_sum / static_cast<double>(at.rows),
          .train_top1 = static_cast<double>(at.top1) / static_cast<double>(at.rows),
          .validation = std::nullopt,
          .images_per_s = statistics.epoch_images_per_s(),
          .bad_rows = at.bad_rows,
          .data_ms = waits[0],
          .data_share = waits[1]};
}

bool Run::Impl::finish_epoch() {
  const std::uint64_t epoch = at.epoch + 1;
  const bool last = last_epoch();
  const bool keep = last || due(epoch, config.checkpoint.every_epochs) ||
                    due(at.step, config.checkpoint.every_steps);
  EpochRecord record = epoch_record();
  const double validation_began_s = now_s();
  if (val_rows && (last || due(epoch, config.eval.every_epochs))) {
    // A run that dies in a long validation goes on from here and makes the validation up.
    if (keep) save(checkpoints.path_of(at.step));
    record.validation = validate();
    if (!record.validation) return false;
  }
  if (record.validation) statistics.validation_s = now_s() - validation_began_s;
  const double seconds = statistics.epoch_s + now_s() - validation_began_s;

  require(!record.validation || std::isfinite(record.validation->loss),
          fmt::format("the validation's loss is {} behind step {} (epoch {}): training diverged. "
                      "Lower optim.lr or lengthen optim.warmup-epochs",
                      record.validation->loss, at.step, epoch));
  const bool best = record.validation && record.validation->top1 > at.best_top1;
  if (best) at.best_top1 = record.validation->top1;
  if (best) at.best_epoch = epoch;
  if (speaker()) {
    log::end_progress();
    metrics->add(to_json(record));
    metrics->flush();
    log::info(epoch_line(record, config.epochs, seconds));
    if (!at.bad_rows.empty())
      log::warn(fmt::format("{} row(s) of epoch {} were broken and replaced by others:\n  {}",
                            at.bad_rows.size(), epoch, join(at.bad_rows, "\n  ")));
  }
  at.epoch = epoch;
  at.batch = 0;
  at.loss_sum = 0;
  at.rows = at.top1 = 0;
  at.bad_rows.clear();
  statistics.begin_epoch();
  // The best one first: a checkpoint that counts it must not outlive its absence.
  if (best) save_best();
  if (keep) save(checkpoints.path_of(at.step));
  return true;
}

std::optional<Validation> Run::Impl::validate() {
  comm::activity::enter(comm::Phase::evaluation);
  if (!evaluator) {
    EvaluatorSpec evaluation;
    evaluation.network = trainer->network();
    // Normalised as the training images are, whatever the validation set says.
    evaluation.program = trainer->program_spec();
    if (config.eval.batch != 0) evaluation.program.batch = config.eval.batch;
    evaluation.augment = evaluation_augment(config, input, val_rows->info());
    evaluation.workers = loader_threads();
    evaluation.bind_worker = spec.bind_worker;
    evaluation.stop = [this] { return asked_to_stop(); };
    evaluator.emplace(evaluation, backend, trainer->parameters(), control, *val_rows);
  }
  const Evaluation result = evaluator->evaluate();
  if (result.stopped) return std::nullopt;
  return newest_validation = result.mean;
}

CheckpointHeader Run::Impl::header() const {
  CheckpointHeader header;
  header.progress = at;
  header.config = saved_config();
  header.backend = backend.description();
  header.build = build_id();
  header.world = static_cast<std::uint64_t>(control.world());
  header.metrics_bytes = metrics->bytes();
  header.input = input;
  return header;
}

void Run::Impl::save(const std::filesystem::path& path) {
  audit();
  comm::activity::enter(comm::Phase::checkpoint);
  if (!speaker()) return;
  generation->require_newest();
  const double began_s = now_s();
  metrics->flush();  // a checkpoint never counts on lines that are not yet on the disk
  write_checkpoint(path, header(), trainer->parameters());
  checkpoints.prune();
  longest_save_s = std::max(longest_save_s, now_s() - began_s);
}

void Run::Impl::save_best() {
  save(checkpoints.best_of(at.step));
  if (speaker()) checkpoints.name_best(at.step);
}

void Run::Impl::conclude() {
  comm::activity::enter(comm::Phase::ending);
  const double seconds = now_s() - spec.started_s;
  const double peak = control.max({static_cast<double>(peak_resident_bytes())}, "summary")[0];
  if (!speaker()) return;
  metrics->flush();
  std::filesystem::remove(comm::activity::post_mortem_room(directory.root()));
  write_text_atomically(directory.summary(), summary_json(config, at, statistics, newest_validation,
                                                          seconds, static_cast<std::size_t>(peak)));
  std::string reached = fmt::format("done: {} epoch(s), {} steps", at.epoch, at.step);
  if (newest_validation)
    reached += fmt::format(", validation top-1 {:.2f} % (best {:.2f} % in epoch {})",
                           100 * newest_validation->top1, 100 * at.best_top1, at.best_epoch);
  else if (at.best_top1 >= 0)
    reached += fmt::format(", best validation top-1 {:.2f} % in epoch {}", 100 * at.best_top1,
                           at.best_epoch);
  log::info(fmt::format("{}, in {}; {:.0f} images/s; peak memory {} a rank", reached,
                        human_seconds(seconds), statistics.images_per_s(), human_bytes(peak)));
  if (statistics.steps > 0) log::info(times_line(statistics));
  log::info(fmt::format("{}: config.toml metrics.jsonl binding.json summary.json checkpoints/",
                        directory.root().string()));
}

}  // namespace lockstep::train
