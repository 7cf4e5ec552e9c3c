#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/base/text/ending_names.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/observe/ledger.hpp"

/// What a run says while it goes, one record at a time, and the lines of JSON that keep it. A
/// record lists its fields once, in `fields`; writing and reading both follow that list, so each
/// field has its name and form in one place. A reader skips records and fields that it does not
/// know; fields marked `later` may be missing, because older programs did not write them. Except
/// for starts, ends, ranks, checkpoints, ledgers and fields whose names end in _ms, _per_s or
/// _bytes, a resumed run writes the same lines as an uninterrupted one.
namespace lockstep::observe {

/// Where one step's time went, on one rank. The parts add up to the time by the host's clock from
/// the end of the step before it (or from its beginning, after a checkpoint or a validation) to its
/// own end.
struct StepTimes {
  double data_ms = 0;          ///< waiting for the loader
  double forward_ms = 0;       ///< includes normalising the batch
  double backward_ms = 0;      ///< includes the loss, and the reductions that it hides
  double exposed_comm_ms = 0;  ///< what an exchange takes that backward did not hide
  double update_ms = 0;
  /// All else: a device that was idle between steps, audits, writing records.
  double other_ms = 0;
  double total_ms() const {
    return data_ms + forward_ms + backward_ms + exposed_comm_ms + update_ms + other_ms;
  }
  StepTimes& operator+=(const StepTimes& more);
  StepTimes operator/(double divisor) const;

  static void fields(auto& self, auto&& visit) {
    visit("data_ms", self.data_ms, Form::ms);
    visit("forward_ms", self.forward_ms, Form::ms);
    visit("backward_ms", self.backward_ms, Form::ms);
    visit("exposed_comm_ms", self.exposed_comm_ms, Form::ms);
    visit("update_ms", self.update_ms, Form::ms);
    visit.later("other_ms", self.other_ms, Form::ms);
  }
};

/// The ranks begin to train: a run has one for each of its starts.
struct StartRecord {
  std::string run_id;           ///< 16 hexadecimal digits, the same for all starts of a run
  std::uint64_t from_step = 0;  ///< steps done before it
  std::string resumed_from;     ///< the checkpoint; empty: from the beginning
  std::string build, command;   ///< the program's id; the command line
  std::string directory;        ///< from which it was given: its relative paths begin there
  std::string job;              ///< the Slurm job's number; empty outside one
  std::uint64_t ranks = 1;
  std::uint64_t cores = 0, gpus = 0;  ///< that the ranks have, each once; 0: unknown, or none
  std::vector<std::string> hosts;     ///< of the nodes, by their first ranks
  std::vector<std::string> devices;   ///< what computes, each once
  std::string model, precision;
  std::uint64_t parameters = 0;         ///< learned numbers
  std::uint64_t learning = 0;           ///< those that no --freeze keeps as they are; 0: unknown
  std::uint64_t batch = 0;              ///< rows of a step, over all ranks
  std::uint64_t step_memory_bytes = 0;  ///< a rank's plan for a step
  std::string data, validation_data;    ///< as configured; the second may be empty
  std::uint64_t rows = 0, validation_rows = 0, classes = 0;
  std::uint64_t image = 0;  ///< the shorter side of what the network takes
  std::uint64_t epochs = 0, steps_per_epoch = 0;
  std::uint64_t time_ms = 0;  ///< of all records: when it was written, since 1970
                              ///< (of a step: when it ended)

  static void fields(auto& self, auto&& visit) {
    visit.stamp("start", self.time_ms);
    visit("run_id", self.run_id);
    visit("from_step", self.from_step);
    visit.later("resumed_from", self.resumed_from);
    visit.later("build", self.build);
    visit.later("command", self.command);
    visit.later("directory", self.directory);
    visit.later("job", self.job);
    visit.later("ranks", self.ranks);
    visit.later("cores", self.cores);
    visit.later("gpus", self.gpus);
    visit.later("hosts", self.hosts);
    visit.later("devices", self.devices);
    visit.later("model", self.model);
    visit.later("precision", self.precision);
    visit.later("parameters", self.parameters);
    visit.later("learning", self.learning);
    visit.later("batch", self.batch);
    visit.later("step_memory_bytes", self.step_memory_bytes);
    visit.later("data", self.data);
    visit.later("validation_data", self.validation_data);
    visit.later("rows", self.rows);
    visit.later("validation_rows", self.validation_rows);
    visit.later("classes", self.classes);
    visit.later("image", self.image);
    visit.later("epochs", self.epochs);
    visit.later("steps_per_epoch", self.steps_per_epoch);
  }
};

/// A resume after which the bits are no longer those of an uninterrupted run. The lines and
/// checkpoints before it come from another configuration than that of config.toml.
struct ResumeRecord {
  std::uint64_t step = 0;            ///< steps done before it
  std::vector<std::string> changes;  ///< "optim.lr (0.1, now 0.2)"
  std::uint64_t time_ms = 0;

  static void fields(auto& self, auto&& visit) {
    visit("resumed_from_step", self.step);
    visit.stamp("resume", self.time_ms);
    visit("changes", self.changes);
  }
};

/// The loss scale after a step, in a precision that has one.
struct LossScaling {
  float scale = 0;
  std::uint64_t skipped_steps = 0;  ///< since training began
  bool skipped = false;             ///< this step was; not in the file

  static void fields(auto& self, auto&& visit) {
    visit("loss_scale", self.scale);
    visit("skipped_steps", self.skipped_steps);
  }
};

/// The trust ratios of a step's layers, with a rule that has them (LARS, LAMB).
struct TrustSpread {
  float smallest = 0, median = 0, largest = 0;

  static void fields(auto& self, auto&& visit) {
    visit("trust_min", self.smallest);
    visit("trust_median", self.median);
    visit("trust_max", self.largest);
  }
};

/// Scores by their names, where the task is not classes: see train/scores.hpp.
using Scores = std::map<std::string, double>;

/// Steps and epochs are counted from 1 here. Loss and top-1 are those of the global batch (the loss
/// is null when a skipped step overflowed it), times and memory are rank 0's.
struct StepRecord {
  std::uint64_t step = 0, epoch = 0;
  double loss = 0;
  float lr = 0;
  StepTimes times = {};
  std::optional<LossScaling> loss_scale = std::nullopt;
  /// Share of the rows, 0 to 1. Where the task is not classes there are scores instead: here, and
  /// in epochs.
  double top1 = std::numeric_limits<double>::quiet_NaN();
  std::optional<double> gradient_norm = std::nullopt;  ///< as StepReport has it
  std::optional<TrustSpread> trust = std::nullopt;     ///< as StepReport has it
  std::uint64_t rows = 0;                              ///< of this step, over all ranks
  std::uint64_t samples = 0;                           ///< rows that training has seen up to here
  double images_per_s = 0;                             ///< rows by the step's time
  std::uint64_t memory_bytes = 0;                      ///< resident in rank 0 now
  std::uint64_t time_ms = 0;
  Scores scores = {};

  static void fields(auto& self, auto&& visit) {
    visit("step", self.step);
    visit.stamp("step", self.time_ms);
    visit("epoch", self.epoch);
    visit("loss", self.loss, Form::mean);
    visit.later("top1", self.top1, Form::share);
    visit.unless_empty("scores", self.scores);
    visit("lr", self.lr);
    visit.later("rows", self.rows);
    visit.later("samples", self.samples);
    visit.group("loss_scale", self.loss_scale);
    visit.later("gradient_norm", self.gradient_norm, Form::mean);
    visit.group("trust_min", self.trust);
    StepTimes::fields(self.times, visit);
    visit.later("images_per_s", self.images_per_s, Form::rate);
    visit.later("memory_bytes", self.memory_bytes);
  }
};

/// Means over a whole validation set.
struct Validation {
  double loss = 0, top1 = 0, top5 = 0;  ///< top1, top5: share of rows, 0 to 1
  Scores scores = {};

  static void fields(auto& self, auto&& visit) {
    visit("val_loss", self.loss, Form::mean);
    visit("val_top1", self.top1, Form::share);
    visit.later("val_top5", self.top5, Form::share);
    visit.unless_empty("val_scores", self.scores);
  }
};

/// The same, of the average of the weights (optim.ema).
struct AverageValidation : Validation {
  AverageValidation() = default;
  AverageValidation(const Validation& validation) : Validation(validation) {}

  static void fields(auto& self, auto&& visit) {
    visit("ema_loss", self.loss, Form::mean);
    visit("ema_top1", self.top1, Form::share);
    visit("ema_top5", self.top5, Form::share);
    visit.unless_empty("ema_scores", self.scores);
  }
};

struct EpochRecord {
  std::uint64_t epoch = 0, step = 0;  ///< step: the last of the epoch
  double train_loss = 0, train_top1 = 0;
  std::optional<Validation> validation = std::nullopt;
  /// In training, over all ranks, since the epoch began or was resumed; null in the file where no
  /// step was left.
  double images_per_s = 0;
  std::vector<std::string> bad_rows = {};  ///< those replaced in this epoch
  /// How long the slowest rank waited for data since the epoch began or was resumed: milliseconds
  /// per step, and as a share of the time in steps (0 to 1; not in the file).
  double data_ms = 0, data_share = 0;
  double steps_ms = 0, validation_ms = 0;  ///< how long the steps, and the validation, took
  std::optional<AverageValidation> average = std::nullopt;
  std::uint64_t time_ms = 0;
  Scores train_scores = {};

  static void fields(auto& self, auto&& visit) {
    visit("epoch", self.epoch);
    visit.stamp("epoch", self.time_ms);
    visit("last_step", self.step);
    visit("train_loss", self.train_loss, Form::mean);
    visit("train_top1", self.train_top1, Form::share);
    visit.unless_empty("train_scores", self.train_scores);
    visit.group("val_loss", self.validation);
    visit.group("ema_loss", self.average);
    visit.unless_empty("bad_rows", self.bad_rows);
    visit.later("images_per_s", self.images_per_s, Form::rate);
    visit.later("data_ms", self.data_ms, Form::ms);
    visit.later("steps_ms", self.steps_ms, Form::ms);
    visit.later("validation_ms", self.validation_ms, Form::ms);
  }
};

/// One part of a step on all ranks: milliseconds per step.
struct Spread {
  double min_ms = 0, median_ms = 0, max_ms = 0;
  std::uint64_t slowest = 0;  ///< the rank with the most
  std::vector<double> ranks;  ///< of each rank

  static void fields(auto& self, auto&& visit) {
    visit("min_ms", self.min_ms, Form::ms);
    visit("median_ms", self.median_ms, Form::ms);
    visit("max_ms", self.max_ms, Form::ms);
    visit("slowest", self.slowest);
    visit("ranks", self.ranks, Form::ms);
  }
};
Spread spread(std::vector<double> ranks_ms);

/// How each rank spent an epoch's steps, also at a stop within the epoch: means of
/// the steps since the epoch began or was resumed.
struct RanksRecord {
  std::uint64_t epoch = 0, step = 0;  ///< step: the last
  std::uint64_t steps = 0;            ///< that the means are of
  Spread data, forward, backward, exposed_comm, update, other;
  std::uint64_t time_ms = 0;

  static void fields(auto& self, auto&& visit) {
    visit.stamp("ranks", self.time_ms);
    visit("epoch", self.epoch);
    visit("until_step", self.step);
    visit("steps", self.steps);
    visit("data", self.data);
    visit("forward", self.forward);
    visit("backward", self.backward);
    visit("exposed_comm", self.exposed_comm);
    visit("update", self.update);
    visit.later("other", self.other);
  }
};
/// REQUIRES: one sum for each rank, of `steps` > 0 steps.
RanksRecord ranks_record(const std::vector<StepTimes>& sums, std::uint64_t steps);
/// The means of each rank that such a record has; 0 where it lacks a part, as older ones do.
std::vector<StepTimes> times_of(const RanksRecord& record);
/// A part of a step, for loops over all of them: where steps and the record have it.
struct StepPart {
  const char *name, *short_name;
  double StepTimes::*step;
  Spread RanksRecord::*ranks;
  bool is_work = true;  ///< the rank's own: else it waits for others
};
inline constexpr StepPart step_parts[] = {
    {"data", "data", &StepTimes::data_ms, &RanksRecord::data},
    {"forward", "fwd", &StepTimes::forward_ms, &RanksRecord::forward},
    {"backward", "bwd", &StepTimes::backward_ms, &RanksRecord::backward},
    {"exposed communication", "comm", &StepTimes::exposed_comm_ms, &RanksRecord::exposed_comm,
     false},
    {"update", "update", &StepTimes::update_ms, &RanksRecord::update},
    {"other", "other", &StepTimes::other_ms, &RanksRecord::other, false}};
/// The upper median of each part.
StepTimes medians_of(const std::vector<StepTimes>& steps);

/// A checkpoint is on the disk.
struct CheckpointRecord {
  std::uint64_t step = 0;   ///< after which its state was
  std::uint64_t bytes = 0;  ///< of its file
  double blocked_ms = 0;    ///< how long the run waited for it: the copy of the state, and audits
  double written_ms = 0;    ///< from then on, or from the end of the one before it, to the disk
  std::uint64_t time_ms = 0;

  static void fields(auto& self, auto&& visit) {
    visit.stamp("checkpoint", self.time_ms);
    visit("of_step", self.step);
    visit("bytes", self.bytes);
    visit("blocked_ms", self.blocked_ms, Form::ms);
    visit("written_ms", self.written_ms, Form::ms);
  }
};

/// How a start ended. A process that is killed at once leaves none.
struct EndRecord {
  std::string status;                   ///< "finished", "stopped", "diverged" or "failed"
  std::string reason;                   ///< one line for a human
  std::uint64_t steps = 0, epochs = 0;  ///< done by the run, over all its starts
  double seconds = 0;                   ///< since this start's process began
  std::uint64_t time_ms = 0;
  Ending ending = Ending::unknown;  ///< older programs do not say it

  static void fields(auto& self, auto&& visit) {
    visit.stamp("end", self.time_ms);
    visit("status", self.status);
    visit.later("ending", self.ending);
    visit.later("reason", self.reason);
    visit.later("steps", self.steps);
    visit.later("epochs", self.epochs);
    visit.later("seconds", self.seconds, Form::ms);
  }
  bool stopped() const { return ending == Ending::stopped || ending == Ending::out_of_time; }
};

using Record = std::variant<StartRecord, ResumeRecord, StepRecord, EpochRecord, RanksRecord,
                            CheckpointRecord, LedgerRecord, EndRecord>;

std::string to_json(const Record& record);  ///< one line, without its end

/// One line. Empty: a record of a newer kind. Throws InputError saying what is wrong with it.
std::optional<Record> parse_record(std::string_view line);

/// The lines of a file that are not lockstep's, or are damaged.
struct StrangeLines {
  std::size_t count = 0, first = 0;  ///< first: its number, from 1
  std::string reason;                ///< what is wrong with the first
};

/// Passes each record of a run's metrics.jsonl to `take`, in order, until it returns false. A last
/// line without its end, as a running or killed run leaves it, is skipped. Throws InputError when
/// the file cannot be read.
StrangeLines read_records(const std::filesystem::path& path,
                          const std::function<bool(const Record&)>& take);
/// "PATH: 6 line(s) are not lockstep records; the first is line 1: ..."; empty without any.
std::string describe(const StrangeLines& lines, const std::filesystem::path& path);

}  // namespace lockstep::observe
