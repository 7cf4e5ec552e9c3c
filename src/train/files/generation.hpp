#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/train/files/run_directory.hpp"

namespace lockstep::train {

/// What a start writes to generations/NUMBER for later starts.
struct StartNotice {
  std::uint64_t number = 0;
  std::optional<std::uint64_t>
      step;  ///< where it resumed; empty: it only told another start to end
  std::string host;
  std::string job;  ///< the Slurm job's number; empty outside one
};

/// The newest start in a run's directory, if any.
std::optional<StartNotice> newest_start(const RunDirectory& run);

/// How many of the newest starts, in a row and all of this job, resumed from `step`: that many made
/// no progress. A start of another job, or by hand, ends the row.
std::size_t starts_without_progress(const RunDirectory& run, const std::string& job,
                                    std::uint64_t step);

/// The number of a start in a run's directory. A lock ends with its process. But a process on a
/// node that is cut off lives on while the scheduler starts its job again elsewhere, and the lock
/// may not reach there, or the old process may still hold it. So each start takes the next number
/// by creating a new file. A start that sees a higher number than its own writes nothing more and
/// ends. Between that look and the end of a write a moment remains, in which an old process may
/// still finish a checkpoint: a complete one, of the same run.
/// **Thread safety:** any thread may call require_newest().
class Generation {
 public:
  /// Takes the next number. Throws Error when the directory cannot be written.
  Generation(const RunDirectory& run, const StartNotice& start);
  std::uint64_t number() const { return number_; }
  /// Throws Error when a newer start has begun. Looks at one directory, which takes milliseconds on
  /// a network file system.
  void require_newest() const;

 private:
  std::filesystem::path next() const;
  RunDirectory run_;
  std::uint64_t number_ = 0;
};

/// Ends a previous start of `now.job` that still holds the directory's lock. The scheduler has
/// started that job again, so it considers the previous process dead. A new generation tells that
/// process to end, and it gets `patience_s` to do so. Returns true when there was one: then its
/// lock no longer counts.
bool take_over_from_previous_start(const RunDirectory& run, const StartNotice& now,
                                   double patience_s);

}  // namespace lockstep::train
