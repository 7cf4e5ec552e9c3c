#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/control.hpp"
#include "ports/tcp/heartbeat/heartbeat_wire.hpp"
#include "ports/tcp/heartbeat/packet_probe.hpp"
#include "ports/tcp/meeting/handshake.hpp"

namespace lockstep::tcp {

/// On the first rank of each node: finds out which of the other nodes this one reaches, and whether
/// their packets come in full size. It listens for their probes, and probes them when rank 0 asks.
/// A probe is a connection with a handshake, tried again for some seconds: a network that loses
/// packets is not broken. To and from rank 0's node, where the heartbeats connect all ranks, only
/// packets are probed.
/// **Thread safety:** none; only the heartbeat's thread uses it. Nothing blocks.
class NodeProbe {
 public:
  /// `cards`: where the first rank of each other node listens.
  NodeProbe(int rank, int world, HandshakeServer door, std::map<int, ListenerCard> cards,
            PacketProbe packets);

  void begin(std::uint64_t round);
  /// Advances the probes. Returns the report once, when all nodes were reached or the time is
  /// over.
  std::optional<ProbeReport> poll();
  void add_to(std::vector<pollfd>& polled) const;
  bool sends() const { return packets_.active(); }  ///< poll() must be called every `turn_s`
  static constexpr double turn_s = PacketProbe::turn_s;

 private:
  bool advance(int rank, std::optional<ConnectAttempt>& attempt);

  int rank_, world_;
  HandshakeServer door_;
  std::map<int, ListenerCard> cards_;
  PacketProbe packets_;
  std::map<int, std::optional<ConnectAttempt>> open_;  ///< nodes that are not reached yet
  std::optional<std::uint64_t> round_;                 ///< the one in progress
  double began_s_ = 0;
};

/// The probe of this rank, if it is the first one of its node and there are several nodes.
/// Collective. `secret`: rank 0's, on every rank.
std::optional<NodeProbe> make_node_probe(const std::vector<std::string>& hosts, const Key& secret,
                                         comm::Control& control);

}  // namespace lockstep::tcp
