#include "lockstep/base/child_process.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"

extern char** environ;

namespace lockstep {
namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// This process's variables, but for those that `given` has.
std::vector<std::string> variables_with(const std::vector<std::string>& given) {
  std::vector<std::string> all = given;
  for (char** one = environ; *one; ++one) {
    const std::string_view variable = *one;
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    const bool replaced = std::any_of(given.begin(), given.end(), [&](const std::string& other) {
      return other.starts_with(name);
    });
    if (!replaced) all.emplace_back(variable);
  }
  return all;
}

/// A connection that a child holds does not end with this process, and other ranks wait for that.
/// Libraries do not mark all of theirs.
void close_in_children() {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    const auto number = whole_number<int>(entry.path().filename().string());
    if (number && *number > 2) ::fcntl(*number, F_SETFD, FD_CLOEXEC);
  }
}

}  // namespace

pid_t start_child(const ChildSpec& spec) {
  const std::vector<std::string> variables = variables_with(spec.environment);
  close_in_children();
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  if (!spec.log.empty()) {
    posix_spawn_file_actions_addopen(&files, 1, spec.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0644);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
  }
  // It handles signals as a program does that the user starts.
  sigset_t blocked, usual;
  sigemptyset(&blocked);
  sigemptyset(&usual);
  for (const int ignored : {SIGPIPE, SIGXFSZ}) sigaddset(&usual, ignored);
  posix_spawnattr_t how;
  posix_spawnattr_init(&how);
  posix_spawnattr_setsigmask(&how, &blocked);
  posix_spawnattr_setsigdefault(&how, &usual);
  const int session = spec.own_session ? POSIX_SPAWN_SETSID : 0;
  posix_spawnattr_setflags(
      &how, static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | session));
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, spec.words.at(0).c_str(), &files, &how,
                                    pointers_to(spec.words).data(), pointers_to(variables).data());
  posix_spawnattr_destroy(&how);
  posix_spawn_file_actions_destroy(&files);
  require(failed == 0, fmt::format("{}: {}", spec.words.front(), std::strerror(failed)));
  return child;
}

std::optional<int> wait_for_child(pid_t child, double patience_s) {
  constexpr std::chrono::milliseconds pause{10};
  const bool for_ever = std::isinf(patience_s);
  const double until_s = now_s() + patience_s;
  for (int status = 0;;) {
    const pid_t ended = ::waitpid(child, &status, for_ever ? 0 : WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0 || now_s() >= until_s) return std::nullopt;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace lockstep
