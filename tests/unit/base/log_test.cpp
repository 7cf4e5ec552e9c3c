#include "lockstep/base/log.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <string>

using namespace lockstep;

namespace {

// What `speak` writes to a file descriptor of the process.
std::string said(int descriptor, const std::function<void()>& speak) {
  std::fflush(nullptr);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const int before = ::dup(descriptor);
  ::dup2(ends[1], descriptor);
  ::close(ends[1]);
  speak();
  ::dup2(before, descriptor);
  ::close(before);
  std::string text(4096, '\0');  // little enough for the pipe to hold
  const ssize_t size = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

struct AsRank {
  AsRank(int rank, int world) { log::set_rank(rank, world); }
  ~AsRank() { log::set_rank(0, 1); }
};

}  // namespace

TEST_CASE("a single process prints lines as they are", "[log]") {
  CHECK(said(STDOUT_FILENO, [] {
          log::info("hello");
          log::info("you");
        }) == "hello\nyou\n");
  CHECK(said(STDERR_FILENO, [] { log::warn("look"); }) == "warning: look\n");
  CHECK(said(STDERR_FILENO, [] { log::error("stop"); }) == "error: stop\n");
}

TEST_CASE("a message with control characters does not move the terminal's cursor", "[log]") {
  CHECK(said(STDERR_FILENO, [] { log::error("no \x1B[2J\r\x7F, a\n\tb \xC3\xA9"); }) ==
        "error: no ?[2J??, a\n\tb \xC3\xA9\n");
}

TEST_CASE("of several ranks only rank 0 informs, and all warn with their rank", "[log]") {
  {
    const AsRank first(0, 4);
    CHECK(said(STDOUT_FILENO, [] { log::info("hello"); }) == "hello\n");
    CHECK(said(STDERR_FILENO, [] { log::warn("look"); }) == "rank 0: warning: look\n");
  }
  const AsRank third(3, 4);
  CHECK(log::rank() == 3);
  CHECK(said(STDOUT_FILENO, [] {
          log::info("a");
          log::progress("b");
          std::puts("");
          std::fflush(stdout);
        }).size() == 1);
  CHECK(said(STDERR_FILENO, [] { log::error("stop"); }) == "rank 3: error: stop\n");
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
  CHECK(said(STDOUT_FILENO, speak) == "1 %\n3 %\nagain\n");
}
