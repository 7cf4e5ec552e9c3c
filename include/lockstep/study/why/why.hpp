#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/text/choices.hpp"
#include "lockstep/observe/course.hpp"
#include "lockstep/observe/records.hpp"

namespace lockstep::study {

/// How the newest start of a run ended.
enum class RunEnding {
  finished,
  running,
  stopped,        ///< by a person or a key, with a checkpoint
  out_of_time,    ///< the allocation's limit
  preempted,      ///< the scheduler took the nodes away
  out_of_memory,  ///< of a device or a node
  lost_rank,      ///< a process or a node is gone
  stuck,          ///< all processes live, and some wait for one that does not move
  network,
  file_system,  ///< it does not answer, or reports errors
  disk_full,
  diverged,      ///< the loss is no number any more
  disagreement,  ///< ranks that must be equal are not
  bad_data,
  superseded,  ///< a newer start has taken the run over
  killed,      ///< it left no word
  never_began,
  unknown
};

/// What a run's folder says of the end of its newest start. Everything may be missing.
struct EndEvidence {
  struct PostMortem {
    std::string reason;
    std::string leave_out = {};           ///< nodes, with commas between them
    std::vector<std::string> troubles{};  ///< of processes: "rank 3 on n2: it is stopped"
    int told_by = 0;                      ///< the rank that wrote it
    std::vector<int> missing{};           ///< the ranks that it had lost
    bool all_were_there = false;          ///< it had heard of each rank, and none had ended
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
  RunEnding ending = RunEnding::unknown;
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

namespace lockstep {

template <>
struct Choices<study::RunEnding> {
  using enum study::RunEnding;
  static constexpr Choice<study::RunEnding> all[] = {
      {finished, "finished"},         {running, "running"},
      {stopped, "stopped"},           {out_of_time, "out of time"},
      {preempted, "preempted"},       {out_of_memory, "out of memory"},
      {lost_rank, "lost rank"},       {stuck, "stuck"},
      {network, "network"},           {file_system, "file system"},
      {disk_full, "disk full"},       {diverged, "diverged"},
      {disagreement, "disagreement"}, {bad_data, "bad data"},
      {superseded, "superseded"},     {killed, "killed"},
      {never_began, "never began"},   {unknown, "unknown"}};
};

}  // namespace lockstep
