// What a heartbeat costs, and what it survives.
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/comm/activity.hpp"
#include "tests/support/folder_fixture.hpp"
#include "tests/unit/liveness/heartbeat_ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

// Calls of the system by other threads than the test's.
std::atomic<int> g_reads = 0, g_sleeps = 0;
const std::thread::id tests_thread = std::this_thread::get_id();
bool other_thread() { return std::this_thread::get_id() != tests_thread; }

}  // namespace

// The program takes these and not the C library's.
ssize_t recv(int socket, void* buffer, size_t size, int flags) {
  if (other_thread()) ++g_reads;
  return syscall(SYS_recvfrom, socket, buffer, size, flags, nullptr, nullptr);
}

int poll(pollfd* entries, nfds_t count, int ms) {
  if (other_thread()) ++g_sleeps;
  // All processors have this call; Arm's have no older one.
  timespec left{ms / 1000, ms % 1000 * 1'000'000L};
  return static_cast<int>(syscall(SYS_ppoll, entries, count, ms < 0 ? nullptr : &left, nullptr, 0));
}

namespace {

/// Connections of ranks 1 to world - 1, all made by this thread.
std::vector<tcp::Wire> connect_all(const std::string& word, int world) {
  std::vector<tcp::Wire> wires(static_cast<std::size_t>(world - 1));
  std::vector<std::unique_ptr<tcp::ConnectAttempt>> tries(wires.size());
  const auto connected = [&] {
    bool all = true;
    for (std::size_t i = 0; i < wires.size(); ++i) {
      if (wires[i].open()) continue;
      if (!tries[i] || tries[i]->failed())
        tries[i] = std::make_unique<tcp::ConnectAttempt>(card_of(word), tcp::heartbeat_purpose,
                                                         static_cast<int>(i) + 1, world);
      if (auto wire = tries[i]->poll()) wires[i] = std::move(*wire);
      all = all && wires[i].open();
    }
    return all;
  };
  REQUIRE(becomes(connected));
  return wires;
}

}  // namespace

TEST_CASE("a beat costs rank 0 one read, and beats that come together one turn, in any world",
          "[heartbeat][slow][waits]") {
  for (const int world : {3, 40, 200}) {
    Ranks ranks(world, 60, 1);
    std::vector<tcp::Wire> wires = connect_all(ranks.word, world);
    for (tcp::Wire& wire : wires) wire.send(tcp::make_beat({}));
    // The first ones, and the last handshakes, are not counted.
    for (int before = -1; std::exchange(before, g_reads.load()) != g_reads;) pause_ms(200);
    const int reads = g_reads, sleeps = g_sleeps, beats = 500;
    const double began_s = now_s();
    for (int i = 0; i < beats; ++i, pause_ms(2)) {
      tcp::Wire& wire = wires[static_cast<std::size_t>(i) % wires.size()];
      wire.send(tcp::make_beat({}));
      while (wire.receive()) continue;
    }
    pause_ms(100);
    CAPTURE(world);
    CHECK(g_reads - reads > 0);
    CHECK(g_reads - reads <= beats);
    // Two sleeps a turn, twenty turns a second.
    CHECK(g_sleeps - sleeps <= 2 * (20 * (now_s() - began_s) + 2));
    for (tcp::Wire& wire : wires) wire.send(std::string(1, tcp::goodbye_mark));
    CHECK(ranks.ended[0] == 0);
  }
}

TEST_CASE("a message that cannot be read ends no heartbeat", "[heartbeat]") {
  Ranks ranks(2, 60, 1);
  tcp::Wire wire = connect(card_of(ranks.word), 1, 2);
  REQUIRE(wire.open());
  for (const char* cut : {"q", "b12", "r123", ""}) wire.send(cut);
  wire.send(tcp::make_beat({}));
  wire.send(tcp::marked(tcp::question_mark, tcp::AbsenceQuestion{7, 3}));
  CHECK(becomes([&] {
    const auto message = wire.receive();
    return tcp::mark_of(message.value_or("")) == tcp::finding_mark &&
           tcp::unmarked<tcp::AbsenceFinding>(*message).number == 7;
  }));
  wire.send(std::string(1, tcp::goodbye_mark));
}

TEST_CASE("where the system gives no thread, lost ranks are reported all the same",
          "[heartbeat][slow][waits]") {
  const Folder folder;
  Ranks ranks(2, 60, 1);
  ranks.heartbeats[0]->leave_post_mortem_in(folder.path);
  pthread_attr_t usual, impossible;
  REQUIRE(pthread_getattr_default_np(&usual) == 0);
  REQUIRE(pthread_getattr_default_np(&impossible) == 0);
  REQUIRE(pthread_attr_setstacksize(&impossible, std::size_t{1} << 62) == 0);
  {
    tcp::Wire wire = connect(card_of(ranks.word), 1, 2);
    REQUIRE(wire.open());
    wire.send(tcp::make_beat({5, comm::Phase::forward, 0, 0, false, 1}));
    REQUIRE(becomes([&] { return wire.receive().has_value(); }));
    REQUIRE(pthread_setattr_default_np(&impossible) == 0);
    CHECK_THROWS(std::thread([] {}).join());
  }
  CHECK(becomes([&] { return ranks.ended[0] == 4; }));
  // Neither does a heartbeat begin, which is an error with a reason.
  std::string word;
  Script control(0, 2, word);
  CHECK_THROWS_WITH(
      liveness::start_heartbeat({"host", 20, 120, 4, [](int) {}}, control),
      Contains("rank 0 on host gets no thread for its heartbeat") && Contains("ulimit -u"));
  REQUIRE(pthread_setattr_default_np(&usual) == 0);
  const std::string told = read_text(folder.path / "post-mortem.json");
  CHECK_THAT(told, Contains("1 of 2 ranks missing: rank 1 on host (its process has ended"));
}
