#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/train/run_directory.hpp"

namespace lockstep::train {

/// What a start leaves in generations/NUMBER.json for those that come later.
struct StartRecord {
  std::uint64_t number = 0;
  std::optional<std::uint64_t> step;  ///< that it resumed from; none: it only told another to end
  std::string host;
  std::string job;  ///< the Slurm job's number; empty outside one
};

/// The newest start in a run's directory, if any.
std::optional<StartRecord> newest_start(const RunDirectory& run);

/// How many of the newest starts, in a row and all of this job, went on from `step`: so many had no
/// success since. Starts of other jobs, and by hand, end the row.
std::size_t starts_without_progress(const RunDirectory& run, const std::string& job,
                                    std::uint64_t step);

/// The number of a start in a run's directory. A lock ends with its process, but a process on a
/// node that is cut off lives on while the scheduler starts its job anew elsewhere, and the lock
/// may not reach there, or the old process may still hold it. So each start takes the next number
/// by creating a file that was not there, and whoever sees a higher number than its own writes
/// nothing more and ends. Between that look and the end of a write a moment remains, in which an
/// old process may still finish a checkpoint: a whole one, of the same run.
class Generation {
 public:
  /// Takes the next number. Throws InputError when the directory cannot be written.
  Generation(const RunDirectory& run, const StartRecord& start);
  std::uint64_t number() const { return number_; }
  /// Throws Error when a newer start has begun. One look at a directory: milliseconds on a
  /// network's file system.
  void require_newest() const;

 private:
  std::filesystem::path next() const;
  RunDirectory run_;
  std::uint64_t number_ = 0;
};

/// Ends a previous start of `now.job` that still holds the directory's lock: the scheduler has
/// started that job again, so it counts the previous process as dead. A new generation tells it to
/// end, and it gets `patience_s` to do so. True when there was one: then its lock no longer counts.
bool take_over_from_previous_start(const RunDirectory& run, const StartRecord& now,
                                   double patience_s);

}  // namespace lockstep::train
