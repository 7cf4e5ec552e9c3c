#pragma once

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep {

struct ChildSpec {
  std::vector<std::string> words;  ///< the program, looked for in PATH, and its arguments
  std::filesystem::path log = {};  ///< takes what it prints; empty: where this process prints
  /// "NAME=value", in addition to this process's.
  std::vector<std::string> environment = {};
  bool own_session = false;  ///< what ends this process's group does not end it
};

/// Starts a program that reads nothing and holds none of this process's files. Throws InputError
/// naming the program and the system's reason.
/// **Thread safety:** any thread.
pid_t start_child(const ChildSpec& spec);

/// Waits at most so long. Its status, or 128 + the signal that ended it; empty: it still runs.
std::optional<int> wait_for_child(pid_t child,
                                  double patience_s = std::numeric_limits<double>::infinity());

}  // namespace lockstep
