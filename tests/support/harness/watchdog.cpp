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
/// One that waits for a core for more than this does not hang: it is starved.
constexpr double starved_share = 0.3;

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

/// How long a thread, or the main one of a process, was ready to run and got no core.
double waited_s(const std::string& folder) {
  std::ifstream file(folder + "/schedstat");
  double on_core_ns = 0, waited_ns = 0;
  file >> on_core_ns >> waited_ns;
  return 1e-9 * waited_ns;
}

/// The folders in /proc of the processes that this one has started, and they, that still run.
std::map<std::string, Stat> descendants() {
  std::map<int, Stat> all;
  for (const std::string& name : numbers_in("/proc"))
    all.emplace(std::atoi(name.c_str()), read_stat("/proc/" + name + "/stat"));
  std::map<std::string, Stat> found;
  for (const auto& [pid, stat] : all) {
    int above = stat.parent;
    while (above > 1 && above != getpid() && all.count(above) > 0) above = all[above].parent;
    if (above == getpid()) found.emplace("/proc/" + std::to_string(pid), stat);
  }
  return found;
}

struct Effort {
  double on_cores_s = 0, waited_s = 0;
};

/// Of this process without the watchdog's thread, and of those that it has started.
Effort effort() {
  rusage children{};
  getrusage(RUSAGE_CHILDREN, &children);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  Effort sum{.on_cores_s = clock_s(CLOCK_PROCESS_CPUTIME_ID) - clock_s(CLOCK_THREAD_CPUTIME_ID) +
                           seconds(children.ru_utime) + seconds(children.ru_stime)};
  for (const std::string& name : numbers_in("/proc/self/task"))
    sum.waited_s += waited_s("/proc/self/task/" + name);
  for (const auto& [folder, stat] : descendants()) {
    sum.on_cores_s += stat.on_core_s;
    sum.waited_s += waited_s(folder);
  }
  return sum;
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
    const Effort now = effort();
    const double on_s = now.on_cores_s;
    if (fresh_) {
      began_s_ = on_s;
      moved_ = now;
    }
    unmoved_s_ = fresh_ ? 0 : unmoved_s_ + passed_s;
    fresh_ = false;
    if (on_s < moved_.on_cores_s || on_s - moved_.on_cores_s > still_share * still_s_ ||
        now.waited_s < moved_.waited_s ||
        now.waited_s - moved_.waited_s > starved_share * still_s_) {
      moved_ = now;
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
  Effort moved_;          // when it was last seen to move, or to wait for a core
  double unmoved_s_ = 0;  // since then
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
