#include "lockstep/base/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/owned.hpp"
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

struct Start {
  char* const* words;
  char* const* variables;
  const char* log;
  bool own_session;
  pid_t parent;
  int tells;  ///< a pipe: the child writes why it could not become its program
};

bool becomes(int file, int wanted) {
  if (file < 0 || file == wanted) return file == wanted;
  return ::dup2(file, wanted) == wanted && ::close(file) == 0;
}

/// A child's way to its program. Until then it has this process's memory, in which it may not
/// allocate or lock, and its signals are blocked.
[[noreturn]] void become_program(Start& start) {
  // It handles signals as a program does that the user starts.
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    if (now.sa_handler == SIG_IGN && number != SIGPIPE && number != SIGXFSZ) continue;
    now.sa_handler = SIG_DFL;
    ::sigaction(number, &now, nullptr);
  }
  if (start.own_session) ::setsid();
  // A parent that has just ended sends nothing more.
  if (!start.own_session &&
      (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || ::getppid() != start.parent))
    ::_exit(1);
  const bool ready =
      becomes(::open("/dev/null", O_RDONLY), 0) &&
      (*start.log == '\0' ||
       (becomes(::open(start.log, O_WRONLY | O_CREAT | O_TRUNC, 0644), 1) && ::dup2(1, 2) == 2));
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (ready) ::execvpe(start.words[0], start.words, start.variables);
  const int reason = errno;
  write_all(start.tells, &reason, sizeof reason);
  ::_exit(1);
}

/// As start_of_process(), read from the system.
std::uint64_t read_start(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  // proc(5): the 22nd field; the 2nd, the name, may hold anything and ends with the last ')'.
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string state, field;
  fields >> state;
  for (int i = 4; i < 22; ++i) fields >> field;
  std::uint64_t ticks = 0;
  if (!(fields >> ticks)) return 0;
  return state == "Z" ? ~std::uint64_t{0} : ticks;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  check(::gethostname(name.data(), name.size() - 1) == 0, "gethostname");
  return name.data();
}

std::filesystem::path own_program() {
  std::error_code none;
  const std::filesystem::path file = std::filesystem::read_symlink("/proc/self/exe", none);
  return file.filename().string().starts_with("ld-linux") ? program_invocation_name : file;
}

std::uint64_t start_of_process(pid_t process) {
  // An emulator may give each thread of its process another one.
  static const std::pair<pid_t, std::uint64_t> own{::getpid(), read_start(::getpid())};
  return process == own.first ? own.second : read_start(process);
}

std::vector<std::string> answer_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> answer(::popen(command.c_str(), "re"),
                                                               ::pclose);
  std::vector<std::string> lines;
  std::array<char, 1024> line{};
  while (answer && std::fgets(line.data(), line.size(), answer.get()))
    lines.emplace_back(line.data());
  return lines;
}

pid_t start_child(const ChildSpec& spec) {
  const std::vector<std::string> variables = variables_with(spec.environment);
  const std::vector<char*> words = pointers_to(spec.words), all = pointers_to(variables);
  close_in_children();
  int ends[2];
  check(::pipe2(ends, O_CLOEXEC) == 0, "pipe2");
  const Descriptor hears(ends[0]);
  Descriptor end(ends[1]);
  Descriptor tells(::fcntl(ends[1], F_DUPFD_CLOEXEC, 3));  // the child's 0 to 2 are its program's
  Start start{words.data(),     all.data(), spec.log.c_str(),
              spec.own_session, ::getpid(), tells.get()};
  sigset_t every, usual;
  sigfillset(&every);
  ::pthread_sigmask(SIG_SETMASK, &every, &usual);
  const pid_t child = ::vfork();  // fork() would copy the tables of a training's memory
  if (child == 0) become_program(start);
  int failed = child < 0 ? errno : 0;
  tells.reset();
  end.reset();
  read_all(hears.get(), &failed, sizeof failed);
  ::pthread_sigmask(SIG_SETMASK, &usual, nullptr);
  if (child > 0 && failed != 0) wait_for_child(child);
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
