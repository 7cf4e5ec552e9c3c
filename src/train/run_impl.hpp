#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/data/data_set.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/data/sampler.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/generation.hpp"
#include "lockstep/train/metrics.hpp"
#include "lockstep/train/resume.hpp"
#include "lockstep/train/run.hpp"
#include "lockstep/train/run_directory.hpp"
#include "lockstep/train/trainer.hpp"
#include "train/report.hpp"
#include "train/stragglers.hpp"

namespace lockstep::train {

/// run.cpp makes it ready, run_loop.cpp runs it.
struct Run::Impl {
  Impl(RunSpec spec_, Backend& backend_, comm::Communicator& communicator_,
       comm::Control& control_);

  // ---- run.cpp: before the first step
  void judge_directory() const;
  void open_data();
  void prepare_resume();
  void begin();  ///< the first that writes
  void claim_directory();
  void take_generation();
  StartRecord this_start() const;
  std::string saved_config() const;
  void start_loader();
  std::string stage_data_of_node();
  void stage_data();
  void measure_workers(const data::LoaderSpec& loading);
  std::size_t loader_threads() const;
  void introduce() const;

  // ---- run_loop.cpp
  Outcome loop();
  /// The next step's batch, when the loader has it and it is of this epoch.
  std::optional<NextBatch> next_batch();
  bool step();   ///< true when the ranks agreed to stop behind it
  void audit();  ///< once behind a step, and before each checkpoint
  void note_bad_rows(const std::vector<std::string>& mine);  ///< collective
  void count_step(const StepReport& report, double loss, float lr);
  void report_loader();
  EpochRecord epoch_record() const;
  bool finish_epoch();  ///< false when the ranks agreed to stop in its validation, still due then
  Outcome stop();
  bool time_is_up() const;     ///< the allocation ends soon; rank 0's word
  bool asked_to_stop() const;  ///< this rank wants all to stop
  void look_for_newer_start();
  std::optional<Validation> validate();  ///< empty when the ranks agreed to stop
  CheckpointHeader header() const;
  void save(const std::filesystem::path& path);
  void save_best();
  void conclude();

  bool speaker() const { return control.rank() == 0; }
  bool same_run() const { return resume && resume->same_run; }
  bool last_epoch() const { return at.epoch + 1 >= config.epochs; }

  RunSpec spec;
  const Config& config;
  Backend& backend;
  comm::Communicator& communicator;
  comm::Control& control;
  RunDirectory directory;
  CheckpointDirectory checkpoints;
  std::vector<std::filesystem::path> found;  ///< rank 0's: the checkpoints that it chose among
  std::optional<RunLock> lock;               ///< rank 0's
  std::optional<Generation> generation;      ///< rank 0's
  bool relieved = false;                     ///< rank 0's: an earlier start was told to end

  std::unique_ptr<data::DataSet> train_rows, val_rows;
  data::AugmentSpec augment;  ///< of training rows
  data::DataSetInfo input;    ///< training rows as the network takes them
  std::optional<data::Sampler> sampler;
  std::size_t measured_workers = 0;  ///< 0: not measured
  std::uint64_t steps_per_epoch = 0;
  optim::ScheduleSpec schedule;
  std::optional<ResumePoint> resume;
  std::vector<std::string> changes;  ///< that the resume brings: see judge_resume
  std::optional<Trainer> trainer;
  std::optional<Evaluator> evaluator;   ///< compiled when first needed
  std::optional<MetricsLog> metrics;    ///< rank 0's
  std::optional<data::Loader> loader;   ///< none when no step is left
  std::optional<data::Batch> upcoming;  ///< lent already, and on its way to the device
  Progress at;
  std::optional<std::uint64_t> audited_step;
  RunStatistics statistics;
  StragglerWatch stragglers{spec.allocation.host, config.data.train};
  double longest_step_s = 0, longest_save_s = 0;
  double looked_s = 0;  ///< now_s() of the last look for a newer start
  std::optional<Validation> newest_validation;
};

}  // namespace lockstep::train
