#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/owned.hpp"
#include "lockstep/comm/fabric.hpp"
#include "ports/tcp/meeting/handshake.hpp"
#include "ports/tcp/mesh/link.hpp"

namespace lockstep::tcp {

/// Who a rank is, to those that connect to it.
struct MeshSpec {
  int rank = 0, world = 1;
  std::string host;                        ///< ranks of one host connect through its loopback
  std::string job, node;                   ///< peers of any other job are turned away
  std::vector<std::uint16_t> ports = {0};  ///< it listens on the first that is free (0: any)
  std::optional<Key> secret = {};          ///< of its door; none: it draws one
  /// Names this start of a world that has the same job and secret in each start; may be empty.
  std::string start = {};
};

/// A rank's links to all others: the fabric of TCP. Two ranks connect when one of them first needs
/// the other: the one with the higher number connects, and the other one listens. Each rank has a
/// secret for this start, which it gives to the others, so no other process comes in. A world of P
/// ranks that uses direct collectives costs each rank P - 1 connections.
/// **Thread safety:** none. It has no thread; move() does the work.
class Mesh final : public comm::Fabric {
 public:
  explicit Mesh(MeshSpec spec);

  int rank() const override { return spec_.rank; }
  int world() const override { return spec_.world; }
  void send(const std::vector<int>& ranks, comm::LetterKind kind, std::string text) override;
  std::optional<comm::Letter> take(comm::LetterKind kind) override;
  std::vector<int> unsent() override;
  void wait() override;
  std::unique_ptr<comm::Transport> make_transport(comm::WaitDeadline& deadline) override;
  void introduce(comm::Control& control) override;
  bool connecting() const override { return unconnected_ > 0 || door_->busy(); }
  bool reaches(int rank) const override { return link_of(rank).open(); }
  bool gone(int rank) const override { return link_of(rank).gone(); }
  std::string host_of(int rank) const override;

  /// From now on these two ranks connect, if they have not yet.
  Link& link(int rank);
  /// Sends and receives what is possible; true when there was something. Waits that long for it.
  bool move(int wait_ms = 0);

  // While the ranks meet, and before they are introduced, rank 0 has a link to each of the others.
  const ListenerCard& card() const { return card_; }
  const ListenerCard& card_of(int rank) const { return peer(rank).card; }
  const Link& link_of(int rank) const { return peer(rank).link; }
  /// The node of a rank that was let in; else empty.
  const std::string& came_from(int rank) const { return peer(rank).node; }
  int strangers() const { return door_->strangers(); }
  /// A new connection, which replaces one that the other side has given up.
  void take_in(int rank, Socket socket);
  /// From now on ranks that come hear this, and do not come in.
  void turn_away(std::string why) { farewell_ = std::move(why); }
  std::size_t turned_away() const { return told_.size(); }  ///< how many ranks have heard it
  std::function<void()> rank_0_gone;  ///< called once, where its connection ends

 private:
  struct Peer {
    Peer(comm::Staging& staging, Link::Hear hear) : link(staging, std::move(hear)) {}
    Link link;
    ListenerCard card{};
    std::string host{}, node{};
    bool wanted = false;
    bool called = false;  ///< it has a higher number, and is to connect
    std::optional<ConnectAttempt> attempt{};
    double again_s = 0;  ///< when to try again
  };

  bool connect();
  void try_to_connect(int rank);
  std::string reason_against(const Hello& hello);
  bool hear(int from, bool ends);
  void watch(int handle, int rank, std::uint32_t events);  ///< this rank's number: its door
  Peer& peer(int rank) const { return *peers_[static_cast<std::size_t>(rank)]; }

  const MeshSpec spec_;
  ListenerCard card_;
  std::optional<HandshakeServer> door_;
  Descriptor events_;  ///< an epoll instance
  comm::Staging staging_;
  std::array<std::deque<comm::Letter>, comm::letter_kinds> letters_;  ///< that have come
  std::vector<std::unique_ptr<Peer>> peers_;                          ///< by rank; also this one
  bool introduced_ = false;
  int unconnected_ = 0;  ///< peers that are wanted and not connected
  double door_s_ = 0;    ///< when to look at the door again
  std::uint32_t transports_ = 0;
  std::string farewell_;  ///< what ranks that come hear; empty: they may come in
  std::set<int> told_;
};

}  // namespace lockstep::tcp
