#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/config/config.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/observe/metrics.hpp"

namespace lockstep::observe {

/// Figures of this process's run, from its records, for the lines that it prints.
struct RunStatistics final : Sink {
  std::uint64_t steps = 0, rows = 0;  ///< rows: over all ranks
  StepTimes times;                    ///< sums over the steps
  double train_s = 0;                 ///< in steps
  double epoch_s = 0;                 ///< in steps of the current epoch
  std::uint64_t epoch_rows = 0;       ///< in those steps
  std::uint64_t epoch_steps = 0;
  double validation_s = 0;  ///< the newest
  double first_step_s = 0;  ///< from the process's start to the end of its first step
  /// The first steps, which take longer than the others; part of the sums above.
  std::uint64_t slow_steps = 0;
  double slow_s = 0;

  void write(const Record& record) override;
  void add(const StepTimes& step, std::uint64_t step_rows);
  double images_per_s() const;
  double epoch_images_per_s() const;
  /// A step's time without the slow first ones; empty until there are others.
  std::optional<double> usual_step_s() const;
  void begin_epoch();
};

/// The keys that differ from their defaults, "configuration: model = resnet20; batch = 128", in
/// lines of at most `columns`.
std::string summarise(const config::Config& config, std::size_t columns = 100);

/// The process's log as a sink: the line of progress, and a line for each epoch with its broken
/// rows. After some epochs of a second and less there is one every few seconds, for all epochs
/// since the one before it. Only rank 0 has one.
class RunLog final : public Sink {
 public:
  /// `statistics` must outlive it and gets each record first.
  RunLog(const RunStatistics& statistics, const model::Progress& start, std::uint64_t epochs,
         std::uint64_t steps_per_epoch, std::uint64_t validate_every);
  void write(const Record& record) override;

 private:
  void step(const StepRecord& record);
  void say_expected_time();
  void epoch(const EpochRecord& record);
  void say_epochs();
  const RunStatistics& statistics_;
  model::Progress progress_;
  std::uint64_t epochs_, steps_per_epoch_, validate_every_;
  bool said_expected_ = false, short_epochs_ = false;
  std::optional<EpochRecord> unsaid_;  ///< the newest of `unsaid_epochs_`
  std::uint64_t unsaid_epochs_ = 0, said_lines_ = 0;
  double unsaid_s_ = 0;  ///< that those took
};

struct ProgressFacts {
  std::uint64_t epochs = 0, steps_per_epoch = 0;
  float lr = 0;
  double loss = 0;                   ///< of the newest step
  std::uint64_t validate_every = 1;  ///< epochs; 0: never
  Scores scores = {};                ///< of the newest step
};
/// Whether the task is classes: others have no top-1.
bool is_of_classes(const Validation& validation);
/// "R2 0.8, RMSE 12.5".
std::string say_scores(const Scores& scores);

/// For a log (`columns` is 0), or for a terminal of this width.
std::string progress_line(const model::Progress& progress, const RunStatistics& statistics,
                          const ProgressFacts& facts, int columns = 0, bool colours = false);

/// "expected time: 12:10 for 4680 steps of 156 ms and 10 validations"
std::string expected_time(double step_s, std::uint64_t steps, double validation_s,
                          std::uint64_t validations);

/// Of the newest of `of` epochs, which took `seconds` together.
std::string epoch_line(const EpochRecord& record, std::uint64_t epochs, double seconds,
                       std::uint64_t of = 1);

/// "of a step's 52.1 ms: data 0.1, forward 18.2, backward 33.0, exposed communication 0.4, update
/// 0.4": means.
std::string times_line(const RunStatistics& statistics);

/// "done: 3 epoch(s), 1170 steps, validation top-1 91.20 % (best 91.50 % in epoch 2)"
/// average: the validation of the weights' average, where there is one.
std::string reached_line(const model::Progress& progress,
                         const std::optional<Validation>& validation,
                         const std::optional<Validation>& average = std::nullopt);

}  // namespace lockstep::observe
