#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/control.hpp"
#include "ports/tcp/connect_attempt.hpp"
#include "ports/tcp/handshake_server.hpp"
#include "ports/tcp/heartbeat/heartbeat_wire.hpp"

namespace lockstep::comm {

/// On the first rank of each node: finds out which of the other nodes this one reaches. It listens
/// for their probes, and probes them when rank 0 asks. A probe is a connection with a handshake,
/// tried again for some seconds: a network that loses packets is not broken.
/// **Thread safety:** none; only the heartbeat's thread uses it. Nothing blocks.
class NodeProbe {
 public:
  /// `cards`: where the first rank of each other node listens.
  NodeProbe(int rank, int world, HandshakeServer door, std::map<int, ListenerCard> cards);

  void begin(std::uint64_t round);
  /// Advances the probes. Returns the report once, when all nodes were reached or the time is
  /// over.
  std::optional<ProbeReport> poll();
  void add_to(std::vector<pollfd>& polled) const;

 private:
  bool advance(int rank, std::optional<ConnectAttempt>& attempt);

  int rank_, world_;
  HandshakeServer door_;
  std::map<int, ListenerCard> cards_;
  std::map<int, std::optional<ConnectAttempt>> open_;  ///< nodes that are not reached yet
  std::optional<std::uint64_t> round_;                 ///< the one in progress
  double began_s_ = 0;
};

/// Where a first rank listens, and where all first ranks do. Collective; the result's cards are
/// empty on other ranks, and where rank 0 has a connection to every node but one.
struct ProbePlaces {
  Listener listener;
  std::map<int, ListenerCard> cards;
};
ProbePlaces exchange_probe_places(const std::vector<std::string>& hosts, const Key& secret,
                                  Control& control);

}  // namespace lockstep::comm
