#include "train/files/run_files.hpp"

#include <random>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/train/ending/notify.hpp"

namespace lockstep::train {
namespace {

// Time for the end of a step, and for a file system that informs other nodes late.
constexpr double patience_with_previous_start_s = 60;

}  // namespace

RunFiles::RunFiles(const RunSpec& spec, comm::Control& control)
    : spec_(spec),
      config_(spec.config),
      control_(control),
      directory_(config_.out),
      checkpoints_(directory_.checkpoints(), config_.checkpoint.keep) {
  if (!is_root()) return;
  if (config_.resume == "auto")
    took_over_ =
        take_over_from_previous_start(directory_, this_start(0), patience_with_previous_start_s);
  checkpoints_at_start_ = checkpoints_.newest_first();
}

void RunFiles::require_free(const RunStart& start) const {
  if (!is_root() || start.same_run()) return;
  if (config_.resume != "auto") return directory_.require_unused();
  // The same command starts a run again that was killed before its first checkpoint.
  directory_.require_unfinished();
  require(checkpoints_at_start_.empty(),
          fmt::format("{} holds no intact checkpoint, and nothing is written over: name another as "
                      "--resume, or choose another --out",
                      directory_.checkpoints().string()));
}

void RunFiles::claim(const RunStart& start) {
  std::string path;
  if (is_root()) {
    const bool may_be_there = start.same_run() || config_.resume == "auto";
    path = may_be_there ? config_.out : train::claim(config_.out);
    make_directories(RunDirectory(path).checkpoints());
    lock_.emplace(RunDirectory(path), took_over_);
  }
  directory_ = RunDirectory(control_.broadcast(path, "run directory"));
  checkpoints_ = model::CheckpointDirectory(directory_.checkpoints(), config_.checkpoint.keep);
  note_run(directory_.root());
  if (spec_.heartbeat) spec_.heartbeat->leave_post_mortem_in(directory_.root());
  if (!is_root()) return;
  // Another run may have written here before this one had the lock.
  require(checkpoints_.newest_first() == checkpoints_at_start_,
          fmt::format("{}: another run has just written here; start again, or choose another "
                      "--out",
                      directory_.root().string()));
  take_generation(start.progress.step);
  liveness::reserve_post_mortem(directory_.root(), control_.world());
}

StartNotice RunFiles::this_start(std::uint64_t step) const {
  return {.number = 0, .step = step, .host = spec_.allocation.host, .job = spec_.allocation.job};
}

/// Ends a job that the scheduler keeps starting from the same step: it would only burn its hours.
void RunFiles::take_generation(std::uint64_t step) {
  const Allocation& allocation = spec_.allocation;
  require(allocation.restarts < 2 || starts_without_progress(directory_, allocation.job, step) < 2,
          fmt::format("{}: job {} was started twice from step {} and got no further; this third "
                      "start ends. See what stopped them (post-mortem.json, the job's output); a "
                      "new job resumes from there",
                      directory_.root().string(), allocation.job, step));
  generation_.emplace(directory_, this_start(step));
}

void RunFiles::begin(const RunStart& start, const Decisions& decisions,
                     const std::string& binding) {
  if (!is_root()) return;
  decisions_ = decisions;
  if (start.same_run())
    std::filesystem::remove(directory_.summary());  // the run is no longer finished
  // Where a run was killed before its first checkpoint, the next start sets its best aside.
  const auto origin = start.resume
                          ? std::filesystem::absolute(start.resume->checkpoint).parent_path()
                          : directory_.checkpoints();
  checkpoints_.go_on_from(start.progress,
                          model::CheckpointDirectory(origin, config_.checkpoint.keep));
  const config::Config asked = experiment();
  write_text_atomically(directory_.config(), config::to_toml(asked));
  write_text_atomically(directory_.decisions(),
                        "# What the newest start chose where config.toml leaves it open\n" +
                            config::to_toml_where_other(decisions.in(asked), asked));
  write_binding(binding);
  if (!spec_.preflight.empty()) write_text_atomically(directory_.preflight(), spec_.preflight);
  start_record_ = start.record;
  start_record_.run_id = run_id(start);
  start_record_.time_ms = observe::unix_ms();
  // The other ranks then know what this one waits for.
  const auto before_wait = [this] { control_.activity.enter(comm::Phase::checkpoint); };
  metrics_.emplace(
      directory_.metrics(), start.same_run() ? start.resume->header.metrics_bytes : 0,
      [this] { require_newest(); }, before_wait);
  records_.subscribe(*metrics_);
  if (!config_.metrics.textfile.empty() || !config_.metrics.listen.empty())
    records_.subscribe(live_.emplace(observe::LiveMetrics::Spec{
        config_.metrics.textfile, config_.metrics.listen, spec_.bind_worker}));
  begin_tensorboard();
  records_.write(start_record_);
  if (!start.changes.empty())
    records_.write(observe::ResumeRecord{.step = start.progress.step, .changes = start.changes});
  metrics_->flush();
  writer_.emplace(checkpoints_,
                  CheckpointWriter::Spec{.copies = copies_,
                                         .enter = spec_.bind_worker,
                                         .before = [this] { flush_sinks(); },
                                         .require_newest = [this] { require_newest(); }});
}

/// REQUIRES: the metrics are cut where this start begins.
void RunFiles::begin_tensorboard() {
  if (!config_.metrics.tensorboard) return;
  tensorboard_.emplace(
      observe::TensorBoardLog::Spec{.folder = directory_.tensorboard(),
                                    .metrics = directory_.metrics(),
                                    .start = start_record_,
                                    .config = decisions_.in(config_),
                                    .require_writer = [this] { require_newest(); }});
  records_.subscribe(*tensorboard_);
}

/// A checkpoint never counts what is not on the disk yet.
void RunFiles::flush_sinks() {
  metrics_->flush();
  if (tensorboard_) tensorboard_->flush();
}

/// That of the run's first start, where this one continues it; else a new one.
std::string RunFiles::run_id(const RunStart& start) const {
  std::string id;
  if (start.same_run() && std::filesystem::exists(directory_.metrics()))
    observe::read_records(directory_.metrics(), [&](const observe::Record& first) {
      if (const auto* begun = std::get_if<observe::StartRecord>(&first)) id = begun->run_id;
      return false;
    });
  std::random_device random;
  return id.empty() ? fmt::format("{:08x}{:08x}", random(), random()) : id;
}

/// What was asked for, without the keys that concern only one start of it.
config::Config RunFiles::experiment() const {
  config::Config experiment = config_;
  experiment.out = directory_.root().string();
  experiment.resume.clear();
  experiment.stop_after = experiment.stop_after_epoch = 0;
  return experiment;
}

void RunFiles::require_newest() const {
  if (generation_) generation_->require_newest();
}

void RunFiles::request_flush_of_metrics() {
  if (metrics_) metrics_->request_flush();
}

void RunFiles::write_binding(const std::string& json) {
  if (is_root()) write_text_atomically(directory_.binding(), json);
}

void RunFiles::begin_save(KeptAs as, model::CheckpointHeader header,
                          const backend::Parameters& parameters,
                          std::vector<model::ExchangePart> parts) {
  if (!is_root()) return;
  header.config = config::to_toml(decisions_.in(experiment()));
  header.metrics_bytes = metrics_->bytes();
  writer_->begin(as, header, parameters, std::move(parts));
}

void RunFiles::add_to_save(std::string_view bytes) { writer_->add(bytes); }

void RunFiles::end_save(double began_s) {
  if (is_root()) writer_->end(began_s);
}

std::vector<observe::CheckpointRecord> RunFiles::record_saved() {
  if (!writer_) return {};
  const auto saved = writer_->poll();
  for (const observe::CheckpointRecord& one : saved) records_.write(one);
  return saved;
}

void RunFiles::finish_saving() {
  if (writer_) writer_->finish();
}

void RunFiles::write_summary(const observe::Summary& summary) {
  if (!is_root()) return;
  if (summary.finished()) liveness::release_post_mortem(directory_.root());
  write_text_atomically(directory_.summary(), observe::to_json(summary));
}

void RunFiles::leave_post_mortem(const liveness::Cause& cause) const {
  if (control_.world() > 1) return;
  try {
    const liveness::Roster alone({spec_.allocation.host});
    liveness::write_post_mortem(directory_.root(), 0, liveness::post_mortem(alone, cause, 0));
  } catch (const std::exception&) {
    return;  // the reason itself is what counts, and is told
  }
}

}  // namespace lockstep::train
