#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/owned.hpp"
#include "tests/support/harness/mpi_world.hpp"

namespace lockstep::test {

/// What `call` throws; empty when it does not.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// Whether a process is stopped (proc(5): the state follows the name in parentheses).
inline bool is_stopped(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const std::size_t end = stat.rfind(')');
  return end != stat.npos && end + 2 < stat.size() && stat[end + 2] == 'T';
}

/// Where ranks meet without messages, while the process `pid` is stopped.
inline std::filesystem::path meeting_file(const std::string& pid) {
  return std::filesystem::temp_directory_path() / ("lockstep-absence-" + pid);
}

/// Returns when `ranks` ranks have called it.
inline void meet_in(const std::filesystem::path& path, int ranks) {
  const Owned<int, ::close, -1> file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
  check(static_cast<bool>(file) && ::write(file.get(), "x", 1) == 1, path.string());
  for (struct stat now{}; ::fstat(file.get(), &now) == 0 && now.st_size < ranks;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ::unlink(path.c_str());
}

/// Rank `absent` hangs like a stopped process while the others `call`, and continues when they have
/// finished. Returns what this rank's call threw; nothing on `absent`. Collective.
template <class Call>
std::string while_absent(int absent, const Call& call) {
  const auto control = test::make_control(30);
  std::filesystem::remove(meeting_file(std::to_string(getpid())));  // left by a run that was killed
  const auto pids = control->gather(std::to_string(getpid()), "process ids");
  if (control->rank() == absent) {
    raise(SIGSTOP);
    return {};
  }
  const std::string& pid = pids[static_cast<std::size_t>(absent)];
  while (!is_stopped(pid)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::string said = error_of(call);
  meet_in(meeting_file(pid), control->world() - 1);  // it must not continue before all are done
  kill(static_cast<pid_t>(std::stol(pid)), SIGCONT);
  return said;
}

}  // namespace lockstep::test
