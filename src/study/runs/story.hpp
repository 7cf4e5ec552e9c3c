#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/config.hpp"
#include "lockstep/observe/binding_record.hpp"
#include "lockstep/observe/summary.hpp"
#include "lockstep/study/why/why.hpp"
#include "study/page/document.hpp"
#include "study/runs/bins.hpp"

/// All that a run's folder tells, in a size that does not depend on the run's length.
namespace lockstep::study {

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
