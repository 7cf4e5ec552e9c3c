#include <catch2/catch.hpp>

#include <chrono>
#include <memory>
#include <thread>

#include "lockstep/base/clock.hpp"
#include "ports/tcp/heartbeat/packet_probe.hpp"

using namespace lockstep;
using namespace lockstep::comm;

namespace {

/// The probes of two nodes, both on this machine. Node 1's card is said to take `bytes`.
struct Two {
  explicit Two(std::uint32_t bytes, const Key& secret_of_1 = {}) {
    Socket sockets[2] = {open_packet_socket(), open_packet_socket()};
    PacketPlace places[2];
    for (const int rank : {0, 1}) {
      places[rank] = place_of(sockets[rank], {"127.0.0.1"});
      CHECK(places[rank].mtus.at(0) > 9000);  // the loopback's
    }
    places[1].mtus = {bytes};
    probes[0] = std::make_unique<PacketProbe>(0, Key{}, std::move(sockets[0]),
                                              std::map<int, PacketPlace>{{1, places[1]}});
    probes[1] = std::make_unique<PacketProbe>(1, secret_of_1, std::move(sockets[1]),
                                              std::map<int, PacketPlace>{{0, places[0]}});
  }
  bool advance(double seconds, const std::function<bool()>& until) {
    for (const double end_s = now_s() + seconds; !until() && now_s() < end_s;
         std::this_thread::sleep_for(std::chrono::milliseconds(5)))
      for (const auto& probe : probes) probe->advance();
    return until();
  }
  std::unique_ptr<PacketProbe> probes[2];
};

}  // namespace

TEST_CASE("packets of full size that come are complete, and nothing is lost", "[packets]") {
  Two nodes(9000);
  for (const auto& probe : nodes.probes) probe->begin(3);
  CHECK(nodes.advance(20,
                      [&] { return nodes.probes[0]->complete() && nodes.probes[1]->complete(); }));
  CHECK(nodes.probes[1]->lost().empty());
  nodes.probes[1]->begin(4);  // what came in another round does not count
  CHECK_FALSE(nodes.probes[1]->complete());
}

TEST_CASE("packets of a stranger, who does not know the secret, do not count", "[packets][waits]") {
  Two nodes(9000, Key{1});
  for (const auto& probe : nodes.probes) probe->begin(1);
  nodes.advance(1.5, [] { return false; });
  CHECK_FALSE(nodes.probes[0]->complete());
  CHECK(nodes.probes[0]->lost().empty());
}
