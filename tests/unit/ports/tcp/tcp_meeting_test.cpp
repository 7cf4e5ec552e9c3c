// Ranks that meet over TCP while rank 0 or its file system is slow.
#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/control_plane.hpp"
#include "lockstep/comm/worlds/tcp.hpp"
#include "ports/tcp/meeting/handshake.hpp"
#include "ports/tcp/mesh/link.hpp"
#include "ports/tcp/wire.hpp"
#include "tests/support/folder_fixture.hpp"
#include "tests/support/tcp_client.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::comm;
using namespace lockstep::tcp;
using Catch::Matchers::Contains;
using test::Folder;
using namespace std::chrono_literals;

cluster::MeetingPlace place_in(const Folder& folder) {
  cluster::MeetingPlace place;
  place.job = "test/9.0/0";
  place.file = folder.path / "private" / "meeting-9";
  place.ports = {0};
  place.node = "localhost";
  return place;
}

/// What a rank of three says of a meeting and a barrier. `here` is called between the two.
std::future<std::string> join(
    const cluster::MeetingPlace& place, int rank, const MeetingSpec& spec = {.deadline_s = 60},
    const std::function<void()>& here = [] {}, const FindAbsence& find_absence = {}) {
  return std::async(std::launch::async, [&place, rank, spec, here, find_absence] {
    cluster::RankInfo self;
    self.rank = rank;
    self.world = 3;
    self.host = "localhost";
    self.authority = cluster::Authority::slurm;
    try {
      ControlPlane plane(meet_over_tcp(place, self, spec), spec.deadline_s);
      plane.ask_first(find_absence);
      here();
      plane.control().barrier("first");
      return std::string("met");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  });
}

bool becomes(const std::function<bool()>& condition) {
  for (const double end = now_s() + 60; now_s() < end && !condition();)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

cluster::MeetingCard card_at(const cluster::MeetingPlace& place) {
  std::optional<cluster::MeetingCard> card;
  if (!becomes([&] { return (card = cluster::read_card(place.file)).has_value(); }))
    throw Error("rank 0 left no card");
  return *card;
}

/// Says hello as `rank`; with `waits` until it is answered.
Wire say_hello(const cluster::MeetingPlace& place, int rank, bool waits) {
  const cluster::MeetingCard card = card_at(place);
  Wire wire(test::connect_to(card.port), handshake_limit);
  const auto host = read_greeting(test::next_message(wire, 30).value_or(""));
  if (!host) throw Error("no greeting");
  const Nonce mine = new_nonce();
  wire.send(make_hello(card.secret, *host, mine, {place.job, rank, 3, "localhost"}));
  if (!waits) return wire;
  const auto answer = test::next_message(wire, 30);
  if (!answer || read_answer(card.secret, *host, mine, *answer) != "") throw Error("not let in");
  return wire;
}

/// What a rank sends on its link: a head, of which only kind and size matter, and a text.
void say(const Socket& socket, std::uint32_t kind, const std::string& text) {
  const std::uint32_t head[] = {kind, 0, static_cast<std::uint32_t>(text.size())};
  std::string bytes(reinterpret_cast<const char*>(head), sizeof head);
  bytes += text;
  if (::write(socket.get(), bytes.data(), bytes.size()) < 0) throw Error("cannot write");
}

void say_here(const Socket& socket) { say(socket, tcp::here, ""); }

/// While it is true, fsync() does not return, as on a file system that hangs.
std::atomic<bool> g_hangs = false;
std::atomic<int> g_hanging = 0;  ///< threads in it

}  // namespace

// The program takes this and not the C library's.
int fsync(int file) {
  ++g_hanging;
  while (g_hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  --g_hanging;
  return static_cast<int>(syscall(SYS_fsync, file));
}

TEST_CASE("a rank that gave up waiting for rank 0's answer comes in when it tries again",
          "[tcp][meeting]") {
  for (const bool answered : {false, true})
    for (const bool last : {false, true}) {
      INFO("the first hello was " << (answered ? "answered" : "not answered") << ", the rank came "
                                  << (last ? "last" : "first"));
      const Folder folder;
      const cluster::MeetingPlace place = place_in(folder);
      auto zero = join(place, 0);
      std::promise<void> here;
      std::future<std::string> two;
      if (last) {
        two = join(place, 2, {.deadline_s = 60}, [&] { here.set_value(); });
        here.get_future().wait();
      }
      say_hello(place, 1, answered).close();
      std::atomic<bool> in = false;
      auto one = join(place, 1, {.deadline_s = 60}, [&] { in = true; });
      const auto ended = [&] { return one.wait_for(0s) == std::future_status::ready; };
      becomes([&] { return in || ended(); });
      if (!last) two = join(place, 2);
      CHECK(one.get() == "met");
      CHECK(zero.get() == "met");
      CHECK(two.get() == "met");
    }
}

TEST_CASE("a rank whose process has ended is named when it does not come again",
          "[tcp][meeting][slow][waits]") {
  const Folder folder;
  const cluster::MeetingPlace place = place_in(folder);
  auto zero = join(place, 0);
  say_hello(place, 1, true).close();
  CHECK_THAT(zero.get(), Contains("rank 1 on localhost came, and its process has ended"));
}

TEST_CASE("a file system that hangs does not keep rank 0 from answering",
          "[tcp][meeting][slow][waits]") {
  const Folder folder;
  const cluster::MeetingPlace place = place_in(folder);
  auto zero = join(place, 0);
  const cluster::MeetingCard card = card_at(place);
  g_hangs = true;
  std::filesystem::remove(place.file);  // rank 0 notices that, and leaves another one
  CHECK(becomes([] { return g_hanging > 0; }));
  for (const double until_s = now_s() + 2.5; now_s() < until_s;) {
    Wire wire(test::connect_to(card.port), handshake_limit);
    CHECK(read_greeting(test::next_message(wire, 5).value_or("")));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(g_hanging > 0);
  CHECK_FALSE(std::filesystem::exists(place.file));
  g_hangs = false;
  CHECK(becomes([&] { return std::filesystem::exists(place.file); }));
  auto one = join(place, 1), other = join(place, 2);
  CHECK(zero.get() == "met");
  CHECK(one.get() == "met");
  CHECK(other.get() == "met");
}

TEST_CASE("a meeting ends though its file system hangs", "[tcp][meeting][slow][waits]") {
  const Folder folder;
  const cluster::MeetingPlace place = place_in(folder);
  g_hangs = true;
  const auto threads = [] { return test::names_in("/proc/self/task").size(); };
  const std::size_t before = threads();
  CHECK_THAT(join(place, 0, {.deadline_s = 0.5}).get(), Contains("ranks 1-2 did not come"));
  CHECK(g_hanging > 0);
  g_hangs = false;
  CHECK(becomes([&] { return threads() <= before; }));
  CHECK_FALSE(std::filesystem::exists(place.file));
}

TEST_CASE("a rank that could not leave a card either does not wait for rank 0",
          "[tcp][meeting][slow][waits]") {
  const Folder folder;
  cluster::MeetingPlace place = place_in(folder);
  place.file = "/proc/none/meeting";
  const double began_s = now_s();
  auto zero = join(place, 0), one = join(place, 1);
  const std::string fault = "/proc/none: the ranks meet here, but it cannot be created";
  CHECK_THAT(zero.get(), Contains(fault));
  CHECK_THAT(one.get(), Contains(fault));
  CHECK(now_s() - began_s < 30);  // the deadline is 60 s
}

TEST_CASE("the deadline of a start also ends the wait for what listens and says nothing",
          "[tcp][meeting][slow][waits]") {
  const Folder folder;
  const cluster::MeetingPlace place = place_in(folder);
  const Listener mute = listen_on(place.ports);
  const auto card = cluster::leave_card(
      place.file,
      cluster::MeetingCard{tcp::new_nonce(), {"127.0.0.1", "127.0.0.2", "127.0.0.3"}, mute.port});
  CHECK_THAT(join(place, 1, {.deadline_s = 0.5}).get(), Contains("rank 0 was not found within"));
  int visits = 0;
  while (accept_on(mute)) ++visits;
  CHECK(visits == 1);  // the wait for one answer is longer than the deadline
}

TEST_CASE("ranks that come to a rank 0 that ends hear why", "[tcp][meeting]") {
  const Folder folder;
  const cluster::MeetingPlace place = place_in(folder);
  auto one = join(place, 1), two = join(place, 2);
  cluster::RankInfo self;
  self.world = 3;
  self.host = "localhost";
  turn_ranks_away(place, self, "unknown key 'bach'", 60);
  CHECK(one.get() == "rank 0 has ended: unknown key 'bach'");
  CHECK(two.get() == ended_text("unknown key 'bach'"));
  CHECK_FALSE(std::filesystem::exists(place.file));
}

TEST_CASE("a connection that has ended says whether its rank is alive",
          "[tcp][meeting][slow][waits]") {
  for (const bool alive : {false, true}) {
    const Folder folder;
    const cluster::MeetingPlace place = place_in(folder);
    const auto knows = [alive](double) -> std::optional<Absence> {
      if (!alive) return Absence{{1}, "missing: rank 1 (its process has ended)"};
      return Absence{{}, "all ranks are alive", Ending::network};
    };
    const auto nothing = [] {};
    auto zero = join(place, 0, {.deadline_s = 60}, nothing, knows);
    auto two = join(place, 2, {.deadline_s = 60}, nothing, knows);
    {
      Socket socket = say_hello(place, 1, true).take_socket();
      say_here(socket);  // and then its connection ends
      CHECK(becomes([&] { return !std::filesystem::exists(place.file); }));
    }
    const char* wanted = alive ? "first: the connection between localhost and localhost, where "
                                 "rank 1 is alive, broke: does the network between these nodes "
                                 "work?"
                               : "first: rank 1 has gone; missing: rank 1 (its process has ended)";
    CHECK(zero.get() == wanted);
    CHECK(two.get() == wanted);
  }
}

TEST_CASE("after the deadline of a meeting the heartbeats say which rank is late",
          "[tcp][meeting][slow][waits]") {
  const Folder folder;
  const cluster::MeetingPlace place = place_in(folder);
  std::optional<Absence> known = Absence{{2}, "the others wait for rank 2"};
  const auto knows = [&](double) { return known; };
  for (const bool late : {true, false}) {
    if (!late) known = Absence{{}, "does the network work?", Ending::network};
    auto zero = join(
        place, 0, {.deadline_s = 4}, [] {}, knows);
    auto two = join(
        place, 2, {.deadline_s = 4}, [] {}, knows);
    Socket socket = say_hello(place, 1, true).take_socket();
    say_here(socket);
    CHECK(zero.get() == (late ? "first: rank 2 did not arrive within 4 s"
                              : "first: rank 1 did not arrive within 4 s"));
    two.get();
  }
}

TEST_CASE("a rank that does not take what all are told is named", "[tcp][meeting][slow][waits]") {
  const Folder folder;
  const cluster::MeetingPlace place = place_in(folder);
  auto zero = std::async(std::launch::async, [&place] {
    cluster::RankInfo self;
    self.world = 3;
    ControlPlane plane(meet_over_tcp(place, self, {.deadline_s = 5}), 5);
    try {
      const auto much = [](const std::vector<std::string>&) {
        return std::string(std::size_t{64} << 20, 'x');
      };
      return plane.control().combine("", "first", much);
    } catch (const Error& error) {
      return std::string(error.what());
    }
  });
  Socket one = say_hello(place, 1, true).take_socket();
  Socket two = say_hello(place, 2, true).take_socket();
  for (const Socket* socket : {&one, &two}) {
    say_here(*socket);
    say(*socket, static_cast<std::uint32_t>(LetterKind::part), std::string("first\0", 6));
  }
  std::vector<char> heard(1 << 20);
  while (zero.wait_for(1ms) != std::future_status::ready)
    while (::recv(two.get(), heard.data(), heard.size(), MSG_DONTWAIT) > 0) continue;
  CHECK(zero.get() == "first: rank 1 stopped listening");
}
