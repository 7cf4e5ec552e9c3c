#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep {

/// This machine's name, never $HOSTNAME.
std::string host_name();

/// What starts this program again: its file, or what argv[0] names where a bundle's own loader
/// runs it, which is then this process's file.
std::filesystem::path own_program();

/// When a process began, in the kernel's ticks; 0: not known. A number is given to a new process
/// after a while. One that has ended, and whose parent has not asked for its status, never began.
std::uint64_t start_of_process(pid_t process);

/// The lines that a command of the shell answers; none where it cannot be started.
std::vector<std::string> answer_of(const std::string& command);

struct ChildSpec {
  std::vector<std::string> words;  ///< the program, looked for in PATH, and its arguments
  std::filesystem::path log = {};  ///< takes what it prints; empty: where this process prints
  /// "NAME=value", in addition to this process's.
  std::vector<std::string> environment = {};
  /// It outlives this process, and what ends this process's group. Others get SIGTERM when the
  /// thread that starts them ends, however that happens.
  bool own_session = false;
};

/// Starts a program that reads nothing and holds none of this process's files. Throws InputError
/// naming the program and the system's reason.
/// **Thread safety:** any thread.
pid_t start_child(const ChildSpec& spec);

/// Waits at most so long. Its status, or 128 + the signal that ended it; empty: it still runs.
std::optional<int> wait_for_child(pid_t child,
                                  double patience_s = std::numeric_limits<double>::infinity());

}  // namespace lockstep
