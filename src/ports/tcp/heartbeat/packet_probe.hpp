#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/liveness/links.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::tcp {

/// Where packets for a first rank come to.
struct PacketPlace {
  std::uint16_t port = 0;
  std::vector<std::string> addresses;  ///< numeric
  std::vector<std::uint32_t> mtus;     ///< of each address's card, when the run started

  static void fields(auto& self, auto&& visit) { visit(self.port, self.addresses, self.mtus); }
};

/// A socket for packets on any free port; empty where the system gives none.
Socket open_packet_socket();
/// Without MTUs when the socket is empty.
PacketPlace place_of(const Socket& socket, std::vector<std::string> addresses);

/// On the first rank of each node: finds out whether packets of full size come from the other
/// nodes, where small ones do. The full size is what both cards agreed on when the run started,
/// because connections that were made then still send it; or less, if the system has learned that
/// since. Packets get lost, so each node sends both kinds to all others again and again for some
/// seconds, and counts what comes.
/// **Thread safety:** none; only the heartbeat's thread uses it. Nothing blocks.
class PacketProbe {
 public:
  /// `places`: of the first ranks of the other nodes.
  PacketProbe(int rank, const Key& secret, Socket socket, const std::map<int, PacketPlace>& places);

  void begin(std::uint64_t round);  ///< sends and counts for `seconds`
  void advance();                   ///< call it every `turn_s` while active()
  bool active() const { return turns_ < turns; }
  /// Nothing is left to find out: full packets have come on every way from every other node.
  bool complete() const;
  std::vector<liveness::LinkReport::Lost> lost() const;
  void add_to(std::vector<pollfd>& polled) const;

  static constexpr double turn_s = 0.02, seconds = 6;

 private:
  static constexpr int turns = static_cast<int>(seconds / turn_s);
  /// A way to another node: one of its addresses.
  struct Way {
    int rank = 0;
    std::uint32_t number = 0;  ///< among the ways to that rank
    sockaddr_storage address{};
    std::uint32_t bytes = 0;  ///< of a full packet
  };
  /// What has come on a way from another node, in that round.
  struct Came {
    std::uint64_t round = 0;
    std::uint32_t bytes = 0;  ///< of the full packets
    int small = 0, full = 0;
  };
  void add_ways(int rank, const PacketPlace& place);
  void receive();
  void send(const Way& way, bool full);

  int rank_;
  Key secret_;
  Socket socket_;
  std::vector<Way> ways_;
  std::map<std::pair<int, std::uint32_t>, Came> came_;
  std::uint64_t round_ = 0;
  int turns_ = turns;
  double next_s_ = 0;
};

}  // namespace lockstep::tcp
