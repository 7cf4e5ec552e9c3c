#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/liveness/post_mortem.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/observe/live/live_metrics.hpp"
#include "lockstep/observe/metrics.hpp"
#include "lockstep/observe/summary.hpp"
#include "lockstep/observe/tensorboard/tensorboard_log.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/run.hpp"
#include "train/decisions.hpp"
#include "train/files/checkpoint_writer.hpp"
#include "train/files/generation.hpp"
#include "train/files/resume.hpp"

namespace lockstep::train {

/// What a run starts from.
struct RunStart {
  model::Progress progress;
  std::optional<ResumePoint> resume;  ///< empty: from the beginning
  std::vector<std::string> changes;   ///< by the resume: see judge_resume()
  std::string rate_jump = {};         ///< see say_rate_jump()
  observe::StartRecord record = {};   ///< without the run's id
  bool same_run() const { return resume && resume->same_run; }
};

/// The files of one run: its directory, checkpoints and metrics, with the lock and the generation
/// that make this start the only one that writes there. Every rank has one and makes the same
/// calls. Only rank 0 touches the disk; on other ranks only the collective methods do anything.
/// Nothing is written before claim(). Methods throw Error naming the file, also when a newer start
/// of the run has begun.
/// **Thread safety:** none; the main thread uses it.
class RunFiles {
 public:
  /// With resume = "auto", tells an earlier start of the same Slurm job that still runs in the
  /// directory to end, and waits for it. The references must outlive this.
  RunFiles(const RunSpec& spec, comm::Control& control);

  const RunDirectory& directory() const { return directory_; }
  const model::CheckpointDirectory& checkpoints() const { return checkpoints_; }

  /// Throws InputError unless a run can start from `start` without overwriting anything.
  void require_free(const RunStart& start) const;
  /// Takes the directory for this start; then all ranks know its path. Collective.
  void claim(const RunStart& start);
  /// After claim(): tidies what an earlier start left, and writes what is known before the first
  /// step. `binding`: JSON of all ranks.
  void begin(const RunStart& start, const Decisions& decisions, const std::string& binding);

  /// Throws Error when a newer start has begun. Looks now; the thread that writes the records does
  /// so before it writes, and then their next write() throws.
  void require_newest() const;
  /// The run's records. On rank 0 they go to metrics.jsonl, from begin() on.
  observe::Records& records() { return records_; }
  /// The record of this start, complete after begin() on rank 0.
  const observe::StartRecord& start_record() const { return start_record_; }
  void request_flush_of_metrics();
  void write_binding(const std::string& json);

  /// How many copies of the state there is memory for: see CheckpointWriter. Before begin().
  void set_copies(std::size_t copies) { copies_ = copies; }
  std::size_t copies() const { return copies_; }
  /// Adds the configuration and the length of the metrics to `header`, and saves: see
  /// CheckpointWriter. The parts of the exchange's state follow by add_to_save(), and end_save().
  void begin_save(KeptAs as, model::CheckpointHeader header, const backend::Parameters& parameters,
                  std::vector<model::ExchangePart> parts = {});
  void add_to_save(std::string_view bytes);
  void end_save(double began_s);
  /// On rank 0, whether a checkpoint is not yet on the disk, and for how long one was written.
  bool saving() const { return writer_ && writer_->busy(); }
  double saving_s() const { return writer_ ? writer_->seconds() : 0; }
  /// Records the checkpoints that came to the disk since the last call, and returns them. Throws
  /// Error naming the file that could not be written.
  std::vector<observe::CheckpointRecord> record_saved();
  /// Waits until all are on the disk.
  void finish_saving();
  /// summary.json, which says whether the run is finished.
  void write_summary(const observe::Summary& summary);
  /// For a run of one rank that can write neither an end nor a summary, as on a full disk; of
  /// several ranks, the heartbeat writes it. Throws nothing.
  void leave_post_mortem(const liveness::Cause& cause) const;

 private:
  bool is_root() const { return control_.rank() == 0; }
  StartNotice this_start(std::uint64_t step) const;
  void take_generation(std::uint64_t step);
  config::Config experiment() const;
  std::string run_id(const RunStart& start) const;
  void begin_tensorboard();
  void flush_sinks();

  const RunSpec& spec_;
  const config::Config& config_;
  comm::Control& control_;
  RunDirectory directory_;
  model::CheckpointDirectory checkpoints_;
  observe::Records records_;
  observe::StartRecord start_record_;
  Decisions decisions_;
  // Only on rank 0:
  bool took_over_ = false;  ///< from an earlier start
  std::vector<std::filesystem::path> checkpoints_at_start_;
  std::optional<RunLock> lock_;
  std::optional<Generation> generation_;
  std::size_t copies_ = 2;
  std::optional<observe::MetricsLog> metrics_;
  std::optional<observe::LiveMetrics> live_;
  std::optional<observe::TensorBoardLog> tensorboard_;
  std::optional<CheckpointWriter> writer_;  ///< last: its thread uses the others
};

}  // namespace lockstep::train
