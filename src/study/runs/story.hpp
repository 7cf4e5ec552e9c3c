#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/config.hpp"
#include "lockstep/observe/binding_record.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/observe/summary.hpp"
#include "lockstep/study/why/why.hpp"
#include "study/page/document.hpp"

/// A course of any length in a bounded number of pieces.
namespace lockstep::study {

/// What a piece keeps of single values: where its extremes are, so that none is lost.
struct Extremes {
  std::uint64_t least_step = 0, most_step = 0, count = 0;  ///< count: of finite values
  double least = 0, most = 0, sum = 0;

  void add(std::uint64_t step, double value) {
    if (std::isfinite(value)) merge({step, step, 1, value, value, value});
  }
  void merge(const Extremes& more) {
    if (more.count == 0) return;
    if (count == 0 || more.least < least) least = more.least, least_step = more.least_step;
    if (count == 0 || more.most > most) most = more.most, most_step = more.most_step;
    sum += more.sum;
    count += more.count;
  }
  double mean() const { return sum / static_cast<double>(count); }
};

/// What a piece keeps of the times of steps.
struct PhaseSums {
  observe::StepTimes sum;
  std::uint64_t count = 0;
  void add(std::uint64_t, const observe::StepTimes& times) { merge({times, 1}); }
  void merge(const PhaseSums& more) {
    sum += more.sum;
    count += more.count;
  }
  observe::StepTimes mean() const { return sum / static_cast<double>(count); }
};

/// At most `most` pieces of equally many steps, which double whenever that is too few: nothing has
/// to be known of the length beforehand.
template <class Piece>
class Bins {
 public:
  explicit Bins(std::size_t most) : most_(most) {}
  /// `step` is counted from 1.
  template <class Value>
  void add(std::uint64_t step, const Value& value) {
    if (step == 0) return;
    while ((step - 1) / width_ >= most_) halve();
    const auto index = static_cast<std::size_t>((step - 1) / width_);
    if (index >= pieces_.size()) pieces_.resize(index + 1);
    pieces_[index].add(step, value);
  }
  /// Steps of a piece: piece k has the steps from k * width() + 1 on.
  std::uint64_t width() const { return width_; }
  /// A piece without values has a count of 0.
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  void halve() {
    for (std::size_t k = 0; k < pieces_.size(); ++k)
      if (k % 2 == 0)
        pieces_[k / 2] = pieces_[k];
      else
        pieces_[k / 2].merge(pieces_[k]);
    pieces_.resize((pieces_.size() + 1) / 2);
    width_ *= 2;
  }
  std::size_t most_;
  std::uint64_t width_ = 1;
  std::vector<Piece> pieces_;
};

/// All that a run's folder tells, in a size that does not depend on the run's length.

inline constexpr std::size_t most_points = 2000;  ///< of a curve
inline constexpr std::size_t most_columns = 250;  ///< of the parts of steps

/// One start of a run.
struct Beginning {
  observe::StartRecord start;
  std::optional<observe::EndRecord> end;
  std::uint64_t newest_ms = 0;  ///< of its newest record
  double ledger_s = 0;          ///< of its time that the ledger has
  double seconds() const;       ///< from its first record to its newest one
};

struct RunStory {
  std::string name;  ///< as it was given
  Why why;
  std::uint64_t steps = 0;
  std::vector<Beginning> starts;
  std::vector<observe::ResumeRecord> resumes;
  std::vector<observe::EpochRecord> epochs;
  std::vector<observe::CheckpointRecord> checkpoints;
  /// With a record for the end of each start that left none: its time, without energy. Empty where
  /// the program did not record what the ranks had.
  std::vector<observe::LedgerRecord> ledger;
  Bins<Extremes> loss{most_points / 2}, top1{most_points / 2}, step_ms{most_points / 2};
  Bins<PhaseSums> phases{most_columns};
  PhaseSums measured;                         ///< of the steps of the newest start
  std::uint64_t rows = 0;                     ///< of those steps
  std::optional<observe::RanksRecord> ranks;  ///< the newest start's mean of its records
  std::optional<observe::Summary> summary;
  std::vector<observe::RankBinding> bindings;
  std::optional<config::Config> config;
  std::string toml, decisions;      ///< the files' text; empty without them
  std::vector<std::string> notes;   ///< files that are missing or damaged
  std::uint64_t skipped_steps = 0;  ///< for the loss scale
  std::vector<std::string> bad_rows;
  /// Name and value for each job that it ran in: never added to what the run measured.
  std::vector<std::vector<std::string>> slurm_energy;

  const observe::StartRecord* newest() const {
    return starts.empty() ? nullptr : &starts.back().start;
  }
  /// 0: unknown.
  std::uint64_t steps_per_epoch() const { return newest() ? newest()->steps_per_epoch : 0; }
  std::optional<observe::BestValidation> best() const;
};

/// Throws InputError where the folder is not a run's, or its metrics are another program's. Files
/// that are missing or damaged become notes.
RunStory read_story(const std::filesystem::path& run);

// The sections of a page about runs. Each is empty where the records have nothing for it.

// Over all runs.
std::vector<Block> curves_section(const std::vector<RunStory>& runs);
std::vector<Block> key_differences_section(const std::vector<RunStory>& runs);
std::vector<Block> figures_table(const std::vector<RunStory>& runs);

// Of one run.
std::vector<Block> phases_section(const RunStory& run);
std::vector<Block> ranks_section(const RunStory& run);
std::vector<Block> nodes_section(const RunStory& run);
std::vector<Block> starts_section(const RunStory& run);
std::vector<Block> ledger_section(const RunStory& run);
std::vector<Block> job_section(const RunStory& run);
std::vector<Block> reproduce_section(const RunStory& run);

/// Nodes' GPUs, each once: ranks may share one.
std::size_t gpus_of(const RunStory& run);
/// Name and value: core-hours, GPU-hours and energy of all starts.
std::vector<std::vector<std::string>> used_rows(const RunStory& run);

/// "2026-11-25 14:03:12 UTC"; "?" for 0.
std::string utc_text(std::uint64_t ms);
std::string percent_text(double share);  ///< "91.25 %"

}  // namespace lockstep::study
