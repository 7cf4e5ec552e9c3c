#include "lockstep/liveness/heartbeat.hpp"

#include <array>
#include <utility>

#include "lockstep/comm/record.hpp"
#include "ports/tcp/heartbeat/heartbeat_client.hpp"
#include "ports/tcp/heartbeat/heartbeat_server.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::liveness {

std::unique_ptr<Heartbeat> start_heartbeat(const HeartbeatSpec& spec, comm::Control& control) {
  if (control.world() == 1) return nullptr;
  constexpr const char* phase = "start of the heartbeat";
  std::vector<tcp::KnownRank> ranks =
      comm::gather_records(control, tcp::KnownRank{spec.host, own_process()}, phase);
  tcp::ListenerCard card;
  tcp::Listener listener;
  if (control.rank() == 0) {
    listener = tcp::listen_on(std::array<std::uint16_t, 1>{0});
    card = {tcp::new_nonce(), listener.port, tcp::own_addresses()};
  }
  card = comm::broadcast_record(control, card, phase);
  const std::vector<std::string> hosts = tcp::hosts_of(ranks);
  std::optional<tcp::NodeProbe> probe = tcp::make_node_probe(hosts, card.secret, control);
  if (control.rank() == 0)
    return std::make_unique<tcp::HeartbeatServer>(
        spec, std::move(ranks), tcp::HandshakeServer(card.secret, std::move(listener)),
        std::move(probe));
  if (hosts[static_cast<std::size_t>(control.rank())] == hosts[0])
    card.addresses.insert(card.addresses.begin(), "127.0.0.1");
  return std::make_unique<tcp::HeartbeatClient>(spec, control.rank(), std::move(ranks),
                                                std::move(card), std::move(probe));
}

}  // namespace lockstep::liveness
