#pragma once

#include <poll.h>

#include <functional>
#include <list>
#include <string>
#include <vector>

#include "ports/tcp/meeting/handshake.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::tcp {

/// Rank 0's side of the handshake, for any number of peers at once: accepts connections, lets in
/// the peers that know the secret, and drops the others. Never blocks. A peer may give up at any
/// moment and come again, even when it has just been let in.
class HandshakeServer {
 public:
  HandshakeServer(const Key& secret, Listener listener);

  using Refusal = std::function<std::string(const Hello& hello)>;  ///< empty: the peer may come in
  using LetIn = std::function<void(const Hello& hello, Wire wire)>;
  /// Advances the handshakes of all peers without waiting. `refusal` judges those that know the
  /// secret, and tells them why; `let_in` takes those that may come in.
  void admit(const Refusal& refusal, const LetIn& let_in);

  std::uint16_t port() const { return listener_.port; }
  int strangers() const { return strangers_; }  ///< how many did not know the secret
  /// Until there is something to do here or to read from `others`, but no longer than a twentieth
  /// of a second.
  void wait(std::vector<Wire*> others = {});
  bool busy() const { return !candidates_.empty(); }  ///< handshakes are in progress
  int handle() const { return listener_.socket.get(); }
  void add_to(std::vector<pollfd>& polled) const;

 private:
  /// A connection that has not authenticated yet.
  struct Candidate {
    Wire wire;
    Nonce nonce;
    double came_s;
  };
  bool full() const { return candidates_.size() >= most_candidates; }
  void judge(const Refusal& refusal, const LetIn& let_in);
  void make_room();
  void accept_all();
  bool judged(Candidate& candidate, const Refusal& refusal, const LetIn& let_in);

  Key secret_;
  Listener listener_;
  std::list<Candidate> candidates_;
  int strangers_ = 0;
};

}  // namespace lockstep::tcp
