#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/observe/summary.hpp"

namespace lockstep::study {

/// What a run's folder says of the end of its newest start. Everything may be missing.
struct EndEvidence {
  struct PostMortem {
    std::string reason;
    Ending ending = Ending::unknown;
    std::string leave_out = {};           ///< nodes, with commas between them
    std::vector<std::string> troubles{};  ///< of processes: "rank 3 on n2: it is stopped"
    int told_by = 0;                      ///< the rank that wrote it
    std::vector<int> missing{};           ///< the ranks that it had lost
    std::vector<int> silent{};    ///< of these, those with nothing known to be wrong but silence
    bool all_were_there = false;  ///< it had heard of each rank, and none had ended
    /// Processes that its node's kernel, also of one of these ranks, ended for lack of memory.
    std::uint64_t memory_kills = 0;
    std::uint64_t before_ms = 0;  ///< it was written before this, since 1970: it has whole seconds
  };
  std::optional<observe::StartRecord> start;
  std::optional<observe::EndRecord> end;  ///< of that start
  std::uint64_t steps = 0;
  std::uint64_t last_ms = 0;  ///< when the newest record was written, since 1970
  /// Since when some process holds the run, since 1970; empty when none does any more.
  std::optional<std::uint64_t> held_since_ms;
  std::string lock_fault;                ///< why that is not known; else empty
  std::vector<PostMortem> post_mortems;  ///< of that start
  std::string checkpoint;                ///< the newest one's path
  std::vector<std::string> notes;        ///< files of the run that cannot be read, and lines
  /// When the newest start said its last word, in milliseconds since 1970.
  std::uint64_t last_word_ms() const;
};

/// Throws InputError when `run` is not a run's folder.
void require_run(const std::filesystem::path& run);

/// The same. Damaged files, and those that may not be read, are told in its notes and count as
/// missing.
EndEvidence read_end_evidence(const std::filesystem::path& run);
/// The same without a note about metrics.jsonl. REQUIRES: a run's folder, and what its
/// metrics.jsonl says, which may be long.
EndEvidence read_end_evidence(const std::filesystem::path& run, const observe::Course& course);

struct Why {
  Ending ending = Ending::unknown;
  std::string what;    ///< one sentence
  std::string advice;  ///< what to do now; may be empty
};

/// What Slurm says of a job. It tells of a run only where the run ended with its job: an allocation
/// may continue after it, and a job may run several commands.
struct SlurmWord {
  std::string state = {};  ///< like "OUT_OF_MEMORY"; empty: it was not asked, or does not know
  /// When Slurm began to end the job, and when it had ended, in milliseconds since 1970; 0:
  /// unknown.
  std::uint64_t from_ms = 0, until_ms = 0;
};
/// Asks squeue and sacct about the newest start's job, each for 10 s at most.
SlurmWord ask_slurm_of_end(const EndEvidence& evidence);

Why why_it_ended(const EndEvidence& evidence, const SlurmWord& slurm);

}  // namespace lockstep::study
