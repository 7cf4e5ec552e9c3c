#include "lockstep/base/log.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "lockstep/base/text/words.hpp"

#include "tests/support/written_to.hpp"

using namespace lockstep;
using lockstep::test::written_to;

namespace {

struct AsRank {
  AsRank(int rank, int world) { log::set_rank(rank, world); }
  ~AsRank() { log::set_rank(0, 1); }
};

}  // namespace

TEST_CASE("a single process prints lines as they are", "[log]") {
  CHECK(written_to(STDOUT_FILENO, [] {
          log::info("hello");
          log::info("you");
        }) == "hello\nyou\n");
  CHECK(written_to(STDERR_FILENO, [] { log::warn("look"); }) == "warning: look\n");
  CHECK(written_to(STDERR_FILENO, [] { log::error("stop"); }) == "error: stop\n");
}

TEST_CASE("a name in a message neither moves the cursor nor looks like another line", "[log]") {
  CHECK(written_to(STDERR_FILENO, [] { log::error("no \x1B[2J\r\x7F, a\n\tb \xC3\xA9"); }) ==
        "error: no \\x1b[2J\\x0d\\x7f, a\\n\\tb \xC3\xA9\n");
  CHECK(written_to(STDERR_FILENO, [] { log::warn("a\nerror: b"); }) == "warning: a\\nerror: b\n");
  CHECK(written_to(STDOUT_FILENO, [] { log::info("a\nstep 7"); }) == "a\\nstep 7\n");
  CHECK(written_to(STDOUT_FILENO, [] { log::text("a\x1B\n\tb"); }) == "a\\x1b\n\tb\n");
}

TEST_CASE("bytes that are no UTF-8, and its control characters, are shown by number", "[log]") {
  CHECK(one_line("ros\xE9") == "ros\\xe9");
  CHECK(one_line("\xC2\x9B"
                 "2J") == "\\xc2\\x9b2J");
  const std::string fine = "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \xC2\xA0 \xEF\xBF\xBD";
  CHECK(one_line(fine) == fine);
  for (const char* broken : {"\xE2\x82", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC0\xAF", "\xFF"})
    CHECK(one_line(broken).find_first_not_of("\\x0123456789abcdef") == std::string::npos);
}

TEST_CASE("what stdout did not take is known, but for a reader that has left", "[log]") {
  if (::access("/dev/full", W_OK) != 0) return;
  std::fflush(stdout);
  const auto lost_by = [](int taker) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(taker, STDOUT_FILENO);
      std::signal(SIGPIPE, SIG_IGN);
      log::info("hello");
      std::_Exit(log::lost_output());
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  const int full = ::open("/dev/full", O_WRONLY);
  CHECK(lost_by(full) == ENOSPC);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ::close(ends[0]);
  CHECK(lost_by(ends[1]) == 0);
  const int taken = ::open("/dev/null", O_WRONLY);
  CHECK(lost_by(taken) == 0);
  for (const int file : {full, ends[1], taken}) ::close(file);
}

TEST_CASE("of several ranks only rank 0 informs, and all warn with their rank", "[log]") {
  {
    const AsRank first(0, 4);
    CHECK(written_to(STDOUT_FILENO, [] { log::info("hello"); }) == "hello\n");
    CHECK(written_to(STDERR_FILENO, [] { log::warn("look"); }) == "rank 0: warning: look\n");
  }
  const AsRank third(3, 4);
  CHECK(log::rank() == 3);
  CHECK(written_to(STDOUT_FILENO, [] {
          log::info("a");
          log::progress("b");
          std::puts("");
          std::fflush(stdout);
        }).size() == 1);
  CHECK(written_to(STDERR_FILENO, [] { log::error("stop"); }) == "rank 3: error: stop\n");
}

TEST_CASE("where nothing can be redrawn, progress prints a line now and then", "[log]") {
  const auto speak = [] {
    log::progress("1 %", 100);
    log::progress("2 %", 100);
    log::progress("3 %", 0);
    log::end_progress();
    log::progress("again", 100);
    log::end_progress();
  };
  if (::isatty(STDOUT_FILENO) == 1) return;  // decided once, from the real stdout
  CHECK(written_to(STDOUT_FILENO, speak) == "1 %\n3 %\nagain\n");
}
