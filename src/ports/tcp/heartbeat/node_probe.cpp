#include "ports/tcp/heartbeat/node_probe.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/liveness/links.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::tcp {
namespace {

// Enough for six tries of a connection. With liveness.timeout-s = 20 a run so ends within 30 s,
// and 3 s later where the post-mortem waits for a slow disk.
constexpr double probe_s = 6.5;
constexpr std::size_t most_at_once = 64;

}  // namespace

NodeProbe::NodeProbe(int rank, int world, HandshakeServer door, std::map<int, ListenerCard> cards,
                     PacketProbe packets)
    : rank_(rank),
      world_(world),
      door_(std::move(door)),
      cards_(std::move(cards)),
      packets_(std::move(packets)) {}

void NodeProbe::begin(std::uint64_t round) {
  round_ = round;
  began_s_ = now_s();
  packets_.begin(round);
  open_.clear();
  for (const auto& [rank, card] : cards_) open_[rank];
}

std::optional<ProbeReport> NodeProbe::poll() {
  const auto refusal = [this](const Hello& hello) {
    return hello.world == world_ && hello.job == heartbeat_purpose ? "" : "not of this world";
  };
  door_.admit(refusal, [](const Hello&, Wire) {});  // the answer was all that they wanted
  packets_.advance();
  if (!round_) return std::nullopt;
  std::size_t at_once = 0;
  for (auto node = open_.begin(); node != open_.end() && at_once < most_at_once; ++at_once)
    node = advance(node->first, node->second) ? open_.erase(node) : std::next(node);
  const bool done = open_.empty() && packets_.complete();
  if (!done && now_s() - began_s_ < probe_s) return std::nullopt;
  ProbeReport report{*std::exchange(round_, std::nullopt), {{}, packets_.lost()}};
  for (const auto& [rank, attempt] : open_)
    if (attempt) report.links.not_reached.push_back(rank);  // else its turn never came
  open_.clear();
  return report;
}

/// True when that node was reached.
bool NodeProbe::advance(int rank, std::optional<ConnectAttempt>& attempt) {
  if (!attempt || attempt->failed())
    attempt.emplace(cards_.at(rank), heartbeat_purpose, rank_, world_);
  return attempt->poll().has_value();
}

void NodeProbe::add_to(std::vector<pollfd>& polled) const {
  packets_.add_to(polled);
  door_.add_to(polled);
  for (const auto& [rank, attempt] : open_)
    if (attempt) attempt->add_to(polled);
}

namespace {

/// Where a first rank listens.
struct ProbePlace {
  std::uint16_t port = 0;  ///< for connections
  PacketPlace packets;

  static void fields(auto& self, auto&& visit) { visit(self.port, self.packets); }
};

}  // namespace

std::optional<NodeProbe> make_node_probe(const std::vector<std::string>& hosts, const Key& secret,
                                         comm::Control& control) {
  const std::vector<int> first = liveness::first_ranks_of(hosts);
  if (first.size() < 2) return std::nullopt;
  const bool probes = std::find(first.begin(), first.end(), control.rank()) != first.end();
  Listener listener;
  Socket socket;
  ProbePlace mine;
  if (probes) {
    listener = listen_on(std::array<std::uint16_t, 1>{0});
    socket = open_packet_socket();
    mine = {listener.port, place_of(socket, own_addresses())};
  }
  const auto places = comm::gather_records(control, mine, "start of the heartbeat");
  if (!probes) return std::nullopt;
  std::map<int, ListenerCard> cards;
  std::map<int, PacketPlace> packets;
  for (const int rank : first) {
    if (rank == control.rank()) continue;
    const ProbePlace& place = places[static_cast<std::size_t>(rank)];
    // An address that both nodes have (a container's bridge) leads back to this one.
    const std::vector<std::string>& own = mine.packets.addresses;
    std::vector<std::string> addresses = place.packets.addresses;
    std::erase_if(addresses, [&own](const std::string& address) {
      return std::find(own.begin(), own.end(), address) != own.end();
    });
    if (addresses.empty()) continue;
    packets[rank] = place.packets;
    // Rank 0's connections are those of the heartbeats.
    if (rank > 0 && control.rank() > 0) cards[rank] = {secret, place.port, std::move(addresses)};
  }
  return NodeProbe(control.rank(), control.world(), HandshakeServer(secret, std::move(listener)),
                   std::move(cards),
                   PacketProbe(control.rank(), secret, std::move(socket), packets));
}

}  // namespace lockstep::tcp
