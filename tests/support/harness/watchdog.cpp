#include "tests/support/harness/watchdog.hpp"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/support/harness/harness.hpp"

namespace lockstep::test {
namespace {

/// A case that computes gets more of a core than this, also where many others compute; one whose
/// threads only look at the time now and then gets less.
constexpr double still_share = 0.005;

double clock_s(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// What /proc says of a process or thread: its state, its parent, and its seconds on a core, those
/// of the children that it has waited for included.
struct Stat {
  char state = '?';
  int parent = 0;
  double on_core_s = 0;
};

Stat read_stat(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  if (name_end == text.npos) return {};
  std::istringstream words(text.substr(name_end + 1));
  Stat stat;
  words >> stat.state >> stat.parent;
  std::string skipped;
  for (int field = 5; field < 14; ++field) words >> skipped;
  std::array<double, 4> ticks{};  // its own and its children's, in user mode and in the kernel
  for (double& some : ticks) words >> some;
  stat.on_core_s =
      std::accumulate(ticks.begin(), ticks.end(), 0.0) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return stat;
}

std::vector<std::string> numbers_in(const char* folder) {
  std::vector<std::string> names;
  DIR* const open = opendir(folder);
  if (!open) return names;
  while (const dirent* entry = readdir(open))
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') names.emplace_back(entry->d_name);
  closedir(open);
  return names;
}

/// Of the processes that this one has started, and they, that still run.
std::vector<Stat> descendants() {
  std::map<int, Stat> all;
  for (const std::string& name : numbers_in("/proc"))
    all.emplace(std::atoi(name.c_str()), read_stat("/proc/" + name + "/stat"));
  std::vector<Stat> found;
  for (const auto& [pid, stat] : all) {
    int above = stat.parent;
    while (above > 1 && above != getpid() && all.count(above) > 0) above = all[above].parent;
    if (above == getpid()) found.push_back(stat);
  }
  return found;
}

/// What this process, without the watchdog's thread, and those that it has started do.
struct Effort {
  double on_cores_s = 0;
  bool ready = false;  ///< a thread of it, or a main one of theirs, wants a core now
};

Effort effort() {
  rusage children{};
  getrusage(RUSAGE_CHILDREN, &children);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  Effort all{.on_cores_s = clock_s(CLOCK_PROCESS_CPUTIME_ID) - clock_s(CLOCK_THREAD_CPUTIME_ID) +
                           seconds(children.ru_utime) + seconds(children.ru_stime)};
  for (const Stat& stat : descendants()) {
    all.on_cores_s += stat.on_core_s;
    all.ready = all.ready || stat.state == 'R';
  }
  const std::string own = std::to_string(gettid());
  for (const std::string& name : numbers_in("/proc/self/task"))
    if (name != own && read_stat("/proc/self/task/" + name + "/stat").state == 'R')
      all.ready = true;
  return all;
}

/// Each thread: its name, its state, and what the kernel waits for.
std::string describe_threads() {
  std::string text;
  const auto line = [](const std::string& path) {
    std::string word;
    std::getline(std::ifstream(path), word);
    return word;
  };
  for (const std::string& name : numbers_in("/proc/self/task")) {
    const std::string folder = "/proc/self/task/" + name + "/";
    text += "  thread " + name + " (" + line(folder + "comm") +
            "): " + read_stat(folder + "stat").state + ' ' + line(folder + "wchan") + '\n';
  }
  return text;
}

class Watchdog {
 public:
  explicit Watchdog(double limit_s) : limit_s_(limit_s), still_s_(limit_s / 2) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // the tests' signals are for the tests' threads
    std::thread([this] { run(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void begin(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    name_ = name;
    fresh_ = true;
  }

 private:
  [[noreturn]] void run() {
    const double turn_s = still_s_ / 6;
    for (double last_s = clock_s(CLOCK_MONOTONIC);;) {
      std::this_thread::sleep_for(std::chrono::duration<double>(turn_s));
      const double now_s = clock_s(CLOCK_MONOTONIC);
      // Time in which the whole machine did not run is not the case's.
      look(std::min(now_s - last_s, 2 * turn_s));
      last_s = now_s;
    }
  }

  void look(double passed_s) {
    const std::scoped_lock lock(mutex_);
    if (name_.empty()) return;
    const auto [on_s, ready] = effort();
    if (fresh_) began_s_ = moved_s_ = on_s;
    // One that is ready, and hardly gets a core, is kept from it by others.
    if (!ready) unmoved_s_ += passed_s;
    if (fresh_) unmoved_s_ = 0;
    fresh_ = false;
    if (on_s < moved_s_ || on_s - moved_s_ > still_share * still_s_) {
      moved_s_ = on_s;
      unmoved_s_ = 0;
    }
    if (unmoved_s_ > still_s_) end("that hung", "was hardly on a core for", unmoved_s_);
    if (on_s - began_s_ > limit_s_)
      end("that did not end", "was on the cores for", on_s - began_s_);
  }

  [[noreturn]] void end(const char* which, const char* why, double seconds) {
    dying();
    std::ostringstream text;
    text << "the watchdog ended a test case " << which << ": " << name_ << "\nit " << why << ' '
         << static_cast<int>(seconds) << " s\n"
         << describe_threads();
    const std::string said = text.str();
    [[maybe_unused]] const auto written = write(STDERR_FILENO, said.data(), said.size());
    _exit(124);
  }

  const double limit_s_, still_s_;
  std::mutex mutex_;
  std::string name_;      // empty: nothing is watched
  bool fresh_ = true;     // the case has begun since the last look
  double began_s_ = 0;    // on cores, when the case began
  double moved_s_ = 0;    // on cores, when it was last seen to move
  double unmoved_s_ = 0;  // since then, at looks that found no thread ready
};

Watchdog& watchdog() {
  const char* seconds = std::getenv("LOCKSTEP_TEST_SECONDS");
  // It is never destroyed: its thread runs until the process ends.
  static Watchdog& one = *new Watchdog(seconds ? std::strtod(seconds, nullptr) : 120);
  return one;
}

}  // namespace

void watch(const std::string& test_case) { watchdog().begin(test_case); }
void stop_watching() { watchdog().begin(""); }

}  // namespace lockstep::test
