#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <ctime>

#include "ports/tcp/wire.hpp"

using namespace lockstep::tcp;

namespace {

/// Of this thread: what else runs on the machine does not count.
double computed_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

TEST_CASE("a large message that leaves in small parts costs no more than its bytes", "[tcp]") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const int room = 1;  // the kernel's least: some kilobytes leave at a time
  ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  constexpr std::size_t bytes = 64 << 20;
  Wire from{Socket(ends[0]), bytes}, to{Socket(ends[1]), bytes};
  std::string text(bytes, 'x');
  text.back() = 'y';
  const double began_s = computed_s();
  from.send(text);
  std::optional<std::string> got;
  while (!(got = to.receive()) && from.open()) from.flush();
  CHECK(got == text);
  CHECK_FALSE(from.unsent());
  // Some tenths of a second; moving the rest at each part would take minutes.
  CHECK(computed_s() - began_s < 10);
  from.send("next");
  CHECK(to.receive() == "next");
}
