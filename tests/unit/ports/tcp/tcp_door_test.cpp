// The door at which ranks connect to a rank that may be busy.
#include <catch2/catch.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "ports/tcp/meeting/handshake.hpp"
#include "tests/support/tcp_client.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::tcp;

constexpr double turn_s = 0.3;  // longer than a silent stranger may stay where others wait

/// A door whose owner comes by once a turn, as a rank that computes does.
struct Door {
  Door() : Door(listen_on(std::array<std::uint16_t, 1>{0})) {}
  explicit Door(Listener listener)
      : card{new_nonce(), listener.port, {"127.0.0.1"}}, server(card.secret, std::move(listener)) {}

  void turn() {
    server.admit([](const Hello&) { return std::string(); },
                 [this](const Hello& hello, Wire wire) {
                   sockets.push_back(wire.take_socket());
                   inside.insert(hello.rank);
                 });
  }
  ListenerCard card;
  HandshakeServer server;
  std::set<int> inside;
  std::vector<Socket> sockets;
};

/// A peer that tries again until it is let in.
struct Peer {
  int rank = 0;
  std::optional<ConnectAttempt> attempt{};
  Wire wire{};

  void poll(const Door& door) {
    if (wire.open()) return;
    if (!attempt || attempt->failed()) attempt.emplace(door.card, "test", rank, 1001);
    if (auto made = attempt->poll()) wire = std::move(*made);
  }
};

/// Lets the peers do what they can while the owner of the door computes.
void pass_turn(std::list<Peer>& peers, const Door& door) {
  const double until_s = now_s() + turn_s;
  do {
    for (Peer& peer : peers) peer.poll(door);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } while (now_s() < until_s);
}

std::list<Peer> make_peers(int count) {
  std::list<Peer> peers;
  for (int rank = 1; rank <= count; ++rank) peers.push_back({rank});
  return peers;
}

/// After how many turns all peers are in; 20 when they are not.
int turns_until_in(Door& door, std::list<Peer>& peers) {
  int turns = 0;
  for (; turns < 20 && door.inside.size() < peers.size(); ++turns) {
    pass_turn(peers, door);
    door.turn();
  }
  return turns;
}

/// Connects, and says hello when it was greeted.
Wire greet(Door& door, int rank) {
  Wire wire(test::connect_to(door.card.port), handshake_limit);
  door.turn();
  const auto greeting = test::next_message(wire, 5);
  REQUIRE(greeting);
  const auto host = read_greeting(*greeting);
  REQUIRE(host);
  wire.send(make_hello(door.card.secret, *host, new_nonce(), {"test", rank, 1001, ""}));
  return wire;
}

}  // namespace

TEST_CASE("a peer that has hung up after its hello is not let in, and may come again",
          "[tcp][door][waits]") {
  Door door;
  greet(door, 1).close();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  door.turn();
  CHECK(door.inside.empty());
  std::list<Peer> peers = make_peers(1);
  CHECK(turns_until_in(door, peers) < 20);
}

TEST_CASE("a peer that hangs up when it was let in may come again", "[tcp][door][waits]") {
  Door door;
  Wire wire = greet(door, 1);
  while (door.inside.empty()) door.turn();
  wire.close();
  door.inside.clear();
  std::list<Peer> peers = make_peers(1);
  CHECK(turns_until_in(door, peers) < 20);
}

TEST_CASE("any number of peers come in at a door whose owner is slow", "[tcp][door][slow][waits]") {
  for (const int count : {100, 128, 300, 1000}) {
    INFO(count << " peers");
    Door door;
    std::list<Peer> peers = make_peers(count);
    CHECK(turns_until_in(door, peers) < 20);
  }
}

TEST_CASE("strangers that say nothing keep no peer out of a slow door",
          "[tcp][door][slow][waits]") {
  Door door;
  std::vector<Socket> strangers;
  for (int i = 0; i < 1000; ++i) strangers.push_back(test::connect_to(door.card.port));
  std::list<Peer> peers = make_peers(100);
  CHECK(turns_until_in(door, peers) < 20);
}

TEST_CASE("a handshake's time begins again with the greeting", "[tcp][door][slow][waits]") {
  Door door;
  std::list<Peer> peers = make_peers(1);
  const auto wait = [&](double seconds) {
    for (const double until_s = now_s() + seconds; now_s() < until_s;) {
      peers.front().poll(door);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  wait(2.5);
  door.turn();  // the greeting
  wait(2.5);
  door.turn();  // the hello and, if the peer had given up, the end
  CHECK(door.inside.size() == 1);
}
