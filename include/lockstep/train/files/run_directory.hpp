#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/owned.hpp"

namespace lockstep::train {

/// The paths of one run's files; src/train/README.md says what each is for.
class RunDirectory {
 public:
  explicit RunDirectory(std::filesystem::path root) : root_(std::move(root)) {}
  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path config() const { return root_ / "config.toml"; }
  std::filesystem::path decisions() const { return root_ / "decisions.toml"; }
  std::filesystem::path metrics() const { return root_ / "metrics.jsonl"; }
  std::filesystem::path binding() const { return root_ / "binding.json"; }
  std::filesystem::path preflight() const { return root_ / "preflight.json"; }
  std::filesystem::path summary() const { return root_ / "summary.json"; }
  std::filesystem::path tensorboard() const { return root_ / "tensorboard"; }
  std::filesystem::path checkpoints() const { return root_ / "checkpoints"; }

  /// Throws InputError when a run has written here before: a run never overwrites another.
  void require_unused() const;
  /// Throws InputError when a finished run is here.
  void require_unfinished() const;

 private:
  std::filesystem::path root_;
};

/// Throws InputError where `path`, which this run's configuration gives for `key`, is relative and
/// leads nowhere from here; it says in which folder the run was started. A pattern is not checked.
void require_here(const RunDirectory& run, const std::string& path, const std::string& key);

/// The checkpoint that is meant by the folder of a run, or of its checkpoints: the best one, else
/// the newest intact one; another path means itself. Throws InputError where there is none.
std::string choose_checkpoint(const std::string& path);

/// Creates the directory of a new run, with its folder of checkpoints. If several runs begin at
/// once, only one of them gets it. A "{n}" in `pattern` becomes the first free number from 1;
/// without it, throws InputError when another run was faster. Returns the path.
std::string claim(const std::string& pattern);

/// The right to write in a run's directory. Only one process has it: it locks the file `.lock`
/// there. The lock ends with the process, however that ends, so a run that was killed can be
/// resumed at once. The directory must exist.
class RunLock {
 public:
  /// Throws InputError when another run has the lock for a second, unless this one `took_over` from
  /// it. If the file system has no locks, warns and continues.
  explicit RunLock(const RunDirectory& run, bool took_over = false);

  /// What another process can say of the lock.
  struct State {
    /// Since when some process has it, in ms since 1970 by that process's clock; empty when none
    /// has it now, or that is not known.
    std::optional<std::uint64_t> held_since_ms;
    std::string fault;  ///< why it is not known; else empty
  };
  /// Any user may ask who may read the file. It keeps no other process from asking, and none from
  /// taking the lock for longer than it takes.
  static State look(const RunDirectory& run);

 private:
  Descriptor file_;
};

}  // namespace lockstep::train
