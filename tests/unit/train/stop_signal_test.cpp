#include "lockstep/train/ending/stop_signal.hpp"

#include <csignal>
#include <functional>

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

using namespace lockstep::train;

namespace {

/// The wait status of a process that does `work`, and ends with 0 if a stop is then requested.
int status_of(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int signal : {SIGTERM, SIGUSR1, SIGINT, SIGHUP}) std::signal(signal, SIG_DFL);
    work();
    ::_exit(stop_requested() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

bool asked_to_stop(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
bool ended_by(int status, int signal) { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }

void pause_ms(int ms) { ::usleep(static_cast<useconds_t>(ms) * 1000); }

}  // namespace

TEST_CASE("Ctrl-C, a closed terminal, SIGTERM and SIGUSR1 ask for a stop and end nothing",
          "[run][signal]") {
  CHECK_FALSE(asked_to_stop(status_of([] { catch_stop_signals(false); })));
  for (const int signal : {SIGINT, SIGHUP, SIGTERM, SIGUSR1})
    CHECK(asked_to_stop(status_of([signal] {
      catch_stop_signals(false);
      std::raise(signal);
      catch_stop_signals(false);  // as after the start of MPI
    })));
}

TEST_CASE("a second Ctrl-C ends at once, other signals that come again do not",
          "[run][signal][waits]") {
  const auto twice = [](int first, int second, int gap_ms) {
    return status_of([=] {
      catch_stop_signals(false);
      std::raise(first);
      pause_ms(gap_ms);
      std::raise(second);
    });
  };
  CHECK(ended_by(twice(SIGINT, SIGINT, 550), SIGINT));
  CHECK(ended_by(twice(SIGHUP, SIGHUP, 550), SIGHUP));
  for (const int first : {SIGTERM, SIGUSR1, SIGHUP}) CHECK(asked_to_stop(twice(first, SIGINT, 0)));
  CHECK(asked_to_stop(twice(SIGINT, SIGHUP, 550)));
  CHECK(asked_to_stop(twice(SIGTERM, SIGTERM, 550)));
}

TEST_CASE("a signal that is sent twice at the same moment counts once", "[run][signal]") {
  for (const int signal : {SIGINT, SIGHUP})
    CHECK(asked_to_stop(status_of([signal] {
      catch_stop_signals(false);
      for (int times = 0; times < 3; ++times) std::raise(signal);
    })));
}

TEST_CASE("what the process was started to ignore stays ignored", "[run][signal]") {
  for (const int signal : {SIGINT, SIGHUP}) {
    const int status = status_of([signal] {
      std::signal(signal, SIG_IGN);
      catch_stop_signals(false);
      for (int times = 0; times < 2; ++times) std::raise(signal);
    });
    CHECK(WIFEXITED(status));
    CHECK_FALSE(asked_to_stop(status));
  }
}

TEST_CASE("the rank that speaks says what Ctrl-C does", "[run][signal]") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  CHECK(asked_to_stop(status_of([&] {
    ::dup2(ends[1], STDERR_FILENO);
    catch_stop_signals(true);
    for (const int signal : {SIGHUP, SIGINT, SIGINT}) std::raise(signal);
  })));
  ::close(ends[1]);
  char text[400] = {};
  const ssize_t length = ::read(ends[0], text, sizeof text - 1);
  ::close(ends[0]);
  REQUIRE(length > 0);
  CHECK(std::string(text) ==
        "\nstopping after this step, with a checkpoint; Ctrl-C again ends at once\n");
}
