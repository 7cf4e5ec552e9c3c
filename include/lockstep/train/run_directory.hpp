#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "lockstep/base/owned.hpp"

namespace lockstep::train {

/// The files of one run.
class RunDirectory {
 public:
  explicit RunDirectory(std::filesystem::path root) : root_(std::move(root)) {}
  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path config() const { return root_ / "config.toml"; }
  std::filesystem::path metrics() const { return root_ / "metrics.jsonl"; }
  std::filesystem::path binding() const { return root_ / "binding.json"; }
  std::filesystem::path preflight() const { return root_ / "preflight.json"; }
  std::filesystem::path summary() const { return root_ / "summary.json"; }
  std::filesystem::path checkpoints() const { return root_ / "checkpoints"; }

  /// Throws InputError when a run has written here before: nothing is written over.
  void require_unused() const;
  /// Throws InputError when a finished run is here.
  void require_unfinished() const;

 private:
  std::filesystem::path root_;
};

/// Makes the directory of a new run, with its folder of checkpoints, so that of several runs that
/// begin at once only one has it. A "{n}" in `pattern` becomes the first number from 1 on for which
/// nothing is there; without one, throws InputError when another run was faster. Returns the path.
std::string claim(const std::string& pattern);

/// The right to write in a run's directory, which only one process has: a lock on the file `.lock`
/// in it. It ends with the process, however that ends, so a run that was killed can be resumed at
/// once. The directory must exist.
class RunLock {
 public:
  /// Throws InputError when another run has it, unless this one `took_over` from that. Warns where
  /// the file system has no locks, and continues.
  explicit RunLock(const RunDirectory& run, bool took_over = false);
  /// Whether some process has it now.
  static bool held(const RunDirectory& run);

 private:
  Owned<int, ::close, -1> file_;
};

}  // namespace lockstep::train
