#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/model/checkpoint.hpp"
#include "lockstep/observe/rank_times.hpp"
#include "lockstep/observe/report.hpp"
#include "lockstep/observe/summary.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/loop/ledger.hpp"
#include "lockstep/train/run.hpp"
#include "lockstep/train/run_data.hpp"
#include "lockstep/train/trainer.hpp"
#include "train/ending/stop_policy.hpp"
#include "train/files/run_files.hpp"
#include "train/pipeline/pipeline.hpp"

namespace lockstep::train {

/// What a loop works with; all of it must outlive the loop.
struct RunParts {
  const RunSpec& spec;           ///< as asked for
  const config::Config& config;  ///< with the start's decisions
  backend::Backend& backend;
  comm::Communicator& communicator;
  comm::Control& control;
  RunFiles& files;
  RunData& data;
  Trainer& trainer;
  Ledger& ledger;
  const Whole& whole;
};

/// The loop over epochs and steps, with validation, checkpoints and metrics, from one place of the
/// run to its end or a stop. Every rank has one and makes the same calls; rank 0 logs and writes.
/// Throws Error of Ending::diverged, InputError when too many rows are broken, and as its parts do.
/// **Thread safety:** none; the main thread uses it.
class RunLoop {
 public:
  /// REQUIRES: the trainer's state has consumed `progress` and was audited; the files are claimed;
  /// the loader has started.
  RunLoop(const RunParts& parts, const model::Progress& progress);
  /// Call it once. Collective. However it ends, the records have an end, unless the process is
  /// killed at once.
  Outcome run();

 private:
  /// The sum of all ranks' reports of a step; counts are exact.
  struct StepTotals {
    double loss = 0, rows = 0, top1 = 0;
    std::array<double, 3> sums = {};  ///< as in backend::Metrics
  };
  /// What the ranks tell each other when they read steps.
  struct Agreed {
    std::vector<StepTotals> steps;
    bool stop = false;           ///< some rank wants all to stop
    bool bad_rows = false;       ///< some rank has replaced rows
    bool save = false;           ///< by rank 0's clock a checkpoint is due
    bool saving = false;         ///< rank 0 is still writing one
    std::size_t read_after = 1;  ///< how many steps they read together next
  };
  /// A step that the device runs and the host has not read. progress_ does not count it.
  struct LaunchedStep {
    std::optional<data::Batch> batch;  ///< until it is given back to the loader
    std::size_t global_rows = 0;
    float lr = 0;
    double began_s = 0, data_ms = 0;
    double ended_ms = 0;  ///< on the clock of now_ms(), once it is read
  };

  Outcome run_to_end();
  bool step();  ///< true if the ranks agreed to stop after it
  void launch();
  void release_ended();
  bool reads_now() const;
  bool read_steps();
  void judge_launcher(double step_s) const;
  Agreed add_up(const std::vector<StepReport>& mine, std::size_t bad_rows);
  std::size_t steps_to_read() const;
  void note_bad_rows(const std::vector<std::string>& mine);
  void advance(const StepTotals& totals, bool skipped);
  void record_step(const StepReport& report, const StepTotals& totals, const LaunchedStep& step);
  void add_wall_times(std::vector<LaunchedStep>& steps, std::vector<StepReport>& reports);

  bool
  finish_epoch();  ///< false if the ranks agreed to stop in its validation, which is then still due
  /// Fills the record's validations; false if the ranks agreed to stop.
  bool validate(observe::EpochRecord& record);
  std::optional<observe::Validation> evaluate();
  observe::EpochRecord epoch_record();
  std::optional<observe::RanksRecord> record_ranks();
  Evaluator& evaluator();
  EvaluatorSpec evaluator_spec() const;
  Evaluation evaluate_stages();
  void record_epoch(const observe::EpochRecord& record);
  void begin_next_epoch();

  void audit();  ///< once after a step, and before each checkpoint
  void save(KeptAs as);
  void save_or_postpone();
  void look_at_saves();
  void finish_saves();
  bool wants_stop() const;  ///< this rank's wish
  Outcome stop();
  void finish();
  void close_ledger(std::uint64_t epoch);
  void record_failure(const std::exception& error);
  observe::EndRecord record_end(const std::string& status, Ending ending,
                                const std::string& reason);
  /// 0: there was no validation.
  std::uint64_t best_epoch() const { return progress_.best_epoch; }
  void write_summary(const observe::EndRecord& end, double peak_bytes);
  bool is_root() const { return control_.rank() == 0; }
  bool is_of_classes() const { return data_.input().task == data::Task::classes; }
  static bool due(std::uint64_t count, std::uint64_t every) {
    return every != 0 && count % every == 0;
  }

  const RunSpec& spec_;
  const config::Config& config_;
  backend::Backend& backend_;
  comm::Communicator& communicator_;
  comm::Control& control_;
  RunFiles& files_;
  RunData& data_;
  Trainer& trainer_;
  Ledger& ledger_;
  const Whole& whole_;

  const std::uint64_t steps_per_epoch_;
  const optim::ScheduleSpec schedule_;
  const ScoreKind& score_;  ///< of validations, by which best.h5 is chosen
  StopPolicy stop_policy_;
  SaveClock save_clock_;
  SaveSchedule saves_;
  bool said_postponed_ = false;
  model::Progress progress_;
  std::uint64_t audited_step_;
  observe::RunStatistics statistics_;
  std::optional<observe::RunLog> log_;  ///< on rank 0
  observe::RankTimes rank_times_;
  std::vector<LaunchedStep> launched_;
  std::vector<std::string> bad_rows_;  ///< in them, on this rank
  std::size_t read_after_ = 1;         ///< agreed: that many steps are read together
  /// now_ms() when the newest step was read; empty when the next one starts the clock again.
  std::optional<double> step_ended_ms_;
  std::optional<Evaluator> evaluator_;  ///< compiled when first needed
  std::optional<observe::Validation> newest_validation_, newest_average_;
};

/// Makes some steps and logs what the whole training would take: time, images/s, memory. Nothing is
/// written; the trainer's weights are of no use afterwards. Collective.
void try_steps(const RunParts& parts);

}  // namespace lockstep::train
