#include "lockstep/base/log.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

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

TEST_CASE("a message with control characters does not move the terminal's cursor", "[log]") {
  CHECK(written_to(STDERR_FILENO, [] { log::error("no \x1B[2J\r\x7F, a\n\tb \xC3\xA9"); }) ==
        "error: no ?[2J??, a\n  \tb \xC3\xA9\n");
}

TEST_CASE("a name with a line's end in an error or a warning makes no other message", "[log]") {
  CHECK(written_to(STDERR_FILENO, [] { log::error("a\nerror: b: is gone"); }) ==
        "error: a\n  error: b: is gone\n");
  CHECK(written_to(STDERR_FILENO, [] { log::warn("a\n\nb"); }) == "warning: a\n  \n  b\n");
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
