#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <csignal>

#include "lockstep/liveness/post_mortem.hpp"
#include "lockstep/liveness/process_state.hpp"
#include "lockstep/liveness/roster.hpp"

using namespace lockstep::liveness;

TEST_CASE("a neighbour's process is seen when it is stopped, and when it has ended",
          "[liveness][process]") {
  const pid_t child = fork();
  if (child == 0)
    for (;;) pause();
  ProcessId process = own_process();
  process.number = child;
  int status = 0;
  REQUIRE(kill(child, SIGSTOP) == 0);
  REQUIRE(waitpid(child, &status, WUNTRACED) == child);
  CHECK(trouble_of(process).text == "it is stopped");
  ProcessId elsewhere = process;
  ++elsewhere.space;  // in another container, this number is another process
  CHECK(trouble_of(elsewhere).text.empty());
  REQUIRE(kill(child, SIGKILL) == 0);
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(trouble_of(process).text == "its process has ended");
  CHECK(has_ended(process));
  CHECK(trouble_of(own_process()).text.empty());
  CHECK_FALSE(has_ended(own_process()));
}

TEST_CASE("the kernel's words for a process become the reason of its silence",
          "[liveness][process]") {
  const auto trouble = [](const std::string& state, const std::string& dumping) {
    return trouble_in("Name:\tlockstep\nUmask:\t0022\nState:\t" + state +
                      "\nTgid:\t7\nCoreDumping:\t" + dumping + "\nThreads:\t3\n")
        .text;
  };
  CHECK(trouble("R (running)", "0").empty());
  CHECK(trouble("S (sleeping)", "0").empty());
  CHECK(trouble("D (disk sleep)", "1") == "it has crashed and writes a core");
  CHECK(trouble("D (disk sleep)", "0") ==
        "it is in disk sleep: it waits for a file system or a device");
  CHECK(trouble("T (stopped)", "0") == "it is stopped");
  CHECK(trouble("t (tracing stop)", "0") == "a debugger has stopped it");
  CHECK(trouble("Z (zombie)", "0") == "its process has ended");
  CHECK(trouble_in("").text.empty());
}

TEST_CASE("what a neighbour has seen of a silent rank is said until it beats again",
          "[roster][process]") {
  Roster roster({"a", "b", "b", "b"});
  for (const int rank : {0, 1, 2}) roster.heard(rank, {7, Phase::forward, 0, 0, false, 1});
  roster.pass(10);
  CHECK_FALSE(roster.neighbour(2, 3));
  roster.heard(1, {});
  CHECK(roster.neighbour(2, 3) == 1);
  CHECK_FALSE(roster.neighbour(0, 3));
  roster.seen(2, {"it is stopped"});
  CHECK(roster.describe_missing({2}) ==
        "rank 2 on b (silent for 10 s, last in step 7, forward; it is stopped)");
  CHECK(post_mortem(roster, {.reason = "why", .missing = {2}}, 0)
            .find("\"process\": \"it is stopped\"") != std::string::npos);
  roster.heard(2, {7, Phase::forward, 0, 0, false, 1});
  CHECK(roster.describe_missing({2}) == "rank 2 on b (silent for 0 s, last in step 7, forward)");
}
