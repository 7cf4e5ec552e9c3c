#pragma once

// Why a training is slow: what each reason costs in a step, what to change, and what that brings.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/text/choices.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/study/fit/interval.hpp"
#include "lockstep/train/prepared_run.hpp"

namespace lockstep::study {

/// Why devices wait instead of training.
enum class SlowReason {
  input,          ///< the rows come too late, or their threads take the cores
  communication,  ///< the network, or a rank that the others wait for
  parallel_work,  ///< a step is so small that its fixed costs count
  precision,      ///< of the arithmetic
  memory,         ///< swapping, or a limit that the kernel enforces by slowing down
  allocation,     ///< cores: too few, shared, throttled, or used by others
  monitoring      ///< validation and checkpoints
};

/// Intervals are milliseconds of a step, with the 95 % interval.
struct SlowCause {
  SlowReason reason = SlowReason::input;
  std::string what = {};                        ///< one line
  std::optional<Interval> cost = std::nullopt;  ///< of the reason; empty: not measured
  std::string not_measured = {};                ///< then: why
  std::string change = {};                      ///< the key to change, or who can; may be empty
  /// How much shorter a step, for as many rows, was with that very change; empty: not tried.
  std::optional<Interval> effect = std::nullopt;
  /// It was tried, not found missing: its change also changes what the training learns.
  bool choice = false;
};

struct Diagnosis {
  std::string source;  ///< where the figures are from
  double step_ms = 0;  ///< as the training is
  std::uint64_t batch = 0, steps_per_epoch = 0;
  double devices = 1;  ///< cores, or GPUs, that the training holds; 0: unknown
  bool on_gpus = false;
  std::optional<Interval> floor;  ///< a step with all interventions together; empty: not measured
  std::vector<SlowCause> findings;
  bool stopped = false;  ///< before all was measured
};

/// Costs of less than this share of a step are not worth a change.
constexpr double least_share = 0.03;

/// Whether the finding says that something is wrong: its cost is at least least_share of a step,
/// and its interval is above two thirds of that.
bool worth_changing(const SlowCause& finding, double step_ms);

/// Sorts the findings: what is worth changing by its cost, then what is not, then choices, then
/// what was not measured.
void rank_findings(Diagnosis& diagnosis);

/// The table's rows, the first of them its heads.
std::vector<std::vector<std::string>> table_of(const Diagnosis& diagnosis);
/// The sentences above and below the table.
std::string heading_of(const Diagnosis& diagnosis);
std::string conclusion_of(const Diagnosis& diagnosis);
std::string to_json(const Diagnosis& diagnosis);  ///< with line ends and a final one

}  // namespace lockstep::study

namespace lockstep {

template <>
struct Choices<study::SlowReason> {
  using enum study::SlowReason;
  static constexpr Choice<study::SlowReason> all[] = {{input, "input pipeline"},
                                                      {communication, "communication"},
                                                      {parallel_work, "parallel work"},
                                                      {precision, "architecture, precision"},
                                                      {memory, "memory"},
                                                      {allocation, "allocation, binding"},
                                                      {monitoring, "validation, checkpoints"}};
};

}  // namespace lockstep

namespace lockstep::study {

/// What a run's records say of the steps of its newest start.
struct NewestStart {
  observe::StartRecord start;
  std::vector<observe::RanksRecord> ranks;  ///< of each epoch; some
  std::vector<observe::EpochRecord> epochs;
  double checkpoints_ms = 0;   ///< that the run waited for, over all its steps
  std::uint64_t steps = 0;     ///< of `ranks`
  std::size_t norm_ranks = 1;  ///< model-options.norm-ranks, if the configuration can be read
  std::size_t shards = 0;      ///< the same
};

/// Reads only. Throws InputError when `run` is not a run's folder, or has no record of an epoch's
/// ranks yet.
NewestStart read_newest_start(const std::filesystem::path& run);

/// The configuration of a run's folder, as its newest start followed it. Throws InputError naming
/// the file that is missing or damaged.
config::Config read_config(const std::filesystem::path& run);

/// What these records of `run` say about the same reasons; what they cannot say is not measured.
/// Intervals span the epochs.
Diagnosis diagnose_records(const std::filesystem::path& run, const NewestStart& records);

struct ExamineSpec {
  double seconds = 150;  ///< for all measurements together
};

/// Measures by intervention why the training would be slow: the same ranks, rows and programs, with
/// one thing changed at a time, in turn with the training as it is. Trains on scratch parameters
/// with a learning rate of 0, writes nothing, and ends early when a stop signal has come. Complete
/// on rank 0. Collective. A device that runs later than the host makes one step at a time here.
Diagnosis examine(train::PreparedRun& run, comm::Control& control, const ExamineSpec& spec);

}  // namespace lockstep::study
