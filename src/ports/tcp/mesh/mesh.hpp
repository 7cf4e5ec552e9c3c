#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/owned.hpp"
#include "lockstep/comm/control.hpp"
#include "ports/tcp/connect_attempt.hpp"
#include "ports/tcp/meeting/handshake.hpp"
#include "ports/tcp/mesh/link.hpp"

namespace lockstep::tcp {

/// What ranks say when they are asked for whom they wait. Both ascend.
struct RollCallResult {
  std::vector<int> mute;  ///< they do not answer
  std::vector<int> free;  ///< they answer that they wait for none: they have just come
};

/// A rank's links to all others. Two ranks connect when one of them first needs the other: the one
/// with the higher number connects, and the other one listens. Each rank has a secret for this
/// start, which it has given to the others, so no other process comes in. A world of P ranks that
/// uses direct collectives costs each rank P - 1 connections.
/// **Thread safety:** none. It has no thread; move() does the work, without waiting.
class Mesh {
 public:
  /// Collective. Throws InputError when this process may not open as many connections.
  Mesh(comm::Control& control, const std::string& host, comm::Staging& staging);

  int rank() const { return rank_; }
  int world() const { return static_cast<int>(peers_.size()); }
  const std::string& host_of(int rank) const {
    return peers_[static_cast<std::size_t>(rank)]->host;
  }
  /// From now on these two ranks connect, if they have not yet.
  Link& link(int rank);
  /// Whether it is about to connect: then call move() often.
  bool connecting() const { return unconnected_ > 0 || door_->busy(); }
  bool move();  ///< sends and receives what is possible now; true when there was something

  /// From now on `owner`, an object of this rank, waits for these ranks; for none: its wait is
  /// over. Ranks that ask learn of all waits.
  void note_wait(const void* owner, const std::vector<int>& awaited);
  /// What these ranks, those that they wait for, and so on, say within two seconds. A rank answers
  /// when it calls move().
  RollCallResult ask(const std::vector<int>& ranks);
  void tell(const comm::WaitFinding& finding);  ///< to all ranks that are connected
  comm::WaitFinding finding() const;            ///< that another rank has told this one

 private:
  struct Peer {
    Peer(comm::Staging& staging, const std::string& answer) : link(staging, answer) {}
    Link link;
    ListenerCard card;
    std::string host;
    bool wanted = false;
    bool called = false;  ///< it has a higher number, and is to connect
    std::optional<ConnectAttempt> attempt;
    double again_s = 0;  ///< when to try again
  };

  bool connect();
  void try_to_connect(int rank);
  void watch(int handle, int rank, std::uint32_t events);  ///< this rank's number: its door
  void take(int rank, Socket socket);
  /// Calls move() until `over`.
  void wait(double within_s, const std::function<bool()>& over);
  Peer& peer(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }

  int rank_;
  ListenerCard card_;
  std::optional<HandshakeServer> door_;
  Descriptor events_;  ///< an epoll instance
  std::map<const void*, std::vector<int>> waits_;
  std::string answer_;                        ///< the ranks of all waits
  std::vector<std::unique_ptr<Peer>> peers_;  ///< by rank; also for this one
  int unconnected_ = 0;                       ///< peers that are wanted and not connected
  double door_s_ = 0;                         ///< when to look at the door again
  std::uint32_t questions_ = 0;
};

}  // namespace lockstep::tcp
