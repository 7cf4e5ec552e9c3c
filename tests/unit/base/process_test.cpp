#include "lockstep/base/process.hpp"

#include <catch2/catch.hpp>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Contains;

TEST_CASE("a child's words, variables, output and status are as given", "[child]") {
  const Folder folder("child");
  const auto log = folder.path / "log";
  const pid_t child =
      start_child({.words = {"sh", "-c", "echo \"$1|$NEW|$HOME\"; exit 3", "x", "a b"},
                   .log = log,
                   .environment = {"NEW=c d", "HOME=e"}});
  CHECK(wait_for_child(child) == 3);
  CHECK(read_text(log) == "a b|c d|e\n");
  CHECK(wait_for_child(start_child({.words = {"sh", "-c", "kill -TERM $$"}, .log = log})) ==
        128 + SIGTERM);
}

TEST_CASE("a program that is not there is named", "[child]") {
  CHECK_THROWS_WITH(start_child({.words = {"no-such-program"}}),
                    Contains("no-such-program: No such"));
}

TEST_CASE("a child holds no open file of this process, and ignores no signal", "[child]") {
  const Folder folder("child");
  const auto log = folder.path / "log";
  const int held = ::open("/dev/null", O_RDONLY);
  REQUIRE(held > 2);
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  const std::string asks = "test -e /proc/self/fd/" + std::to_string(held) +
                           " && echo held; kill -PIPE $$; echo ignored";
  CHECK(wait_for_child(start_child({.words = {"sh", "-c", asks}, .log = log})) == 128 + SIGPIPE);
  CHECK(read_text(log).empty());
  std::signal(SIGPIPE, before);
  ::close(held);
}

TEST_CASE("a wait with an end leaves a child that still runs", "[child]") {
  const Folder folder("child");
  const pid_t child =
      start_child({.words = {"sleep", "600"}, .log = folder.path / "log", .own_session = true});
  CHECK_FALSE(wait_for_child(child, 0.05).has_value());
  CHECK(::getsid(child) == child);
  ::kill(child, SIGKILL);
  CHECK(wait_for_child(child) == 128 + SIGKILL);
}

TEST_CASE("a child ends with the thread that starts it, unless it has its own session", "[child]") {
  pid_t tied = 0, free = 0;
  std::thread([&] {
    tied = start_child({.words = {"sleep", "600"}});
    free = start_child({.words = {"sleep", "600"}, .own_session = true});
  }).join();
  CHECK(wait_for_child(tied) == 128 + SIGTERM);
  CHECK_FALSE(wait_for_child(free, 0.05).has_value());
  ::kill(free, SIGKILL);
  CHECK(wait_for_child(free) == 128 + SIGKILL);
}

TEST_CASE("a process is known by when it began, and one that has ended is another", "[child]") {
  const pid_t child = start_child({.words = {"sleep", "600"}});
  const std::uint64_t began = start_of_process(child);
  CHECK((began >= start_of_process(::getpid()) && start_of_process(::getpid()) > 0));
  ::kill(child, SIGKILL);
  siginfo_t ended;
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
  CHECK((start_of_process(child) != 0 && start_of_process(child) != began));
  CHECK(wait_for_child(child) == 128 + SIGKILL);
  CHECK(start_of_process(child) == 0);
}
