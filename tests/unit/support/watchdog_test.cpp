// The watchdog of the tests: it ends cases that are at fault, and no others. Each is run by a copy
// of this program, with limits of seconds.
#include "tests/support/harness/watchdog.hpp"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <string>
#include <thread>

#include <catch2/catch.hpp>

namespace {

using Catch::Contains;

struct Ended {
  int status = -1;
  std::string said;
};

/// Runs the cases with this tag, with this limit of seconds on cores, after these commands.
Ended run_cases(const std::string& tag, int limit_s, const std::string& before = "") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = before + "LOCKSTEP_TEST_SECONDS=" + std::to_string(limit_s) + " '" +
                              self + "' -r harness '" + tag + "' 2>&1";
  std::FILE* const output = popen(command.c_str(), "r");
  REQUIRE(output != nullptr);
  Ended ended;
  for (int c; (c = std::fgetc(output)) != EOF;) ended.said += static_cast<char>(c);
  const int status = pclose(output);
  if (WIFEXITED(status)) ended.status = WEXITSTATUS(status);
  return ended;
}

void compute(double seconds) {
  const std::clock_t end = std::clock() + static_cast<std::clock_t>(seconds * CLOCKS_PER_SEC);
  while (std::clock() < end) continue;
}

/// Calls `work` in a child process and waits for its end.
template <class Work>
void in_a_child(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  REQUIRE(waitpid(child, nullptr, 0) == child);
}

constexpr auto for_ever = std::chrono::hours(1);

}  // namespace

// A child that waits for ever ends with the process that waits for it only when someone ends it, so
// these wait in the process itself.
TEST_CASE("watched: it waits for ever", "[.watched-wait]") {
  std::this_thread::sleep_for(for_ever);
}
TEST_CASE("watched: it looks at the time for ever", "[.watched-ticks]") {
  for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(200));
}
TEST_CASE("watched: it computes for ever", "[.watched-loop]") { compute(1e6); }
TEST_CASE("watched: threads compute for ever", "[.watched-threads]") {
  std::jthread other([] { compute(1e6); });
  std::this_thread::sleep_for(for_ever);
}
TEST_CASE("watched: a child computes", "[.watched-child]") {
  in_a_child([] { compute(1.5); });
}
TEST_CASE("watched: it computes, and then again", "[.watched-sections]") {
  SECTION("once") { compute(1.2); }
  SECTION("twice") { compute(1.2); }
}

TEST_CASE("watched: it is ready to run, and gets no core", "[.watched-starved]") {
  const sched_param none{};
  REQUIRE(sched_setscheduler(0, SCHED_IDLE, &none) == 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(8);
  while (std::chrono::steady_clock::now() < end) continue;
}

TEST_CASE("a case that waits for ever is ended, and its threads are named",
          "[watchdog][slow][waits]") {
  for (const char* tag : {"[watched-wait]", "[watched-ticks]"}) {
    const Ended ended = run_cases(tag, 4);
    INFO(ended.said);
    CHECK(ended.status == 124);
    CHECK_THAT(ended.said, Contains("the watchdog ended a test case that hung: watched: it "));
    CHECK_THAT(ended.said, Contains("(unit_tests): S "));
  }
}

TEST_CASE("a case that computes for ever is ended, in whichever thread", "[watchdog][slow]") {
  for (const char* tag : {"[watched-loop]", "[watched-threads]"}) {
    const Ended ended = run_cases(tag, 1);
    INFO(ended.said);
    CHECK(ended.status == 124);
    CHECK_THAT(ended.said, Contains("the watchdog ended a test case that did not end: watched: "));
  }
}

TEST_CASE("a case continues while its child computes; each run through a case has its own limit",
          "[watchdog][slow][waits]") {
  for (const char* tag : {"[watched-child]", "[watched-sections]"}) {
    const Ended ended = run_cases(tag, 2);
    INFO(ended.said);
    CHECK(ended.status == 0);
    CHECK_THAT(ended.said, Contains("PASS watched: "));
  }
}

TEST_CASE("a case that others keep from the cores is not ended", "[watchdog][slow][waits]") {
  cpu_set_t cores;
  REQUIRE(sched_getaffinity(0, sizeof cores, &cores) == 0);
  int first = 0;
  while (!CPU_ISSET(first, &cores)) ++first;
  const std::string busy = "timeout 30 sh -c 'while :; do :; done' & ";
  const std::string one_core = "taskset -p -c " + std::to_string(first) + " $$ > /dev/null; ";
  const Ended ended = run_cases("[watched-starved]", 4,
                                one_core + busy + "a=$!; " + busy + "trap \"kill $a $!\" EXIT; ");
  INFO(ended.said);
  CHECK_THAT(ended.said, Contains("PASS watched: "));
}
