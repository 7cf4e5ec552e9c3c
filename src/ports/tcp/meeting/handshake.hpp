#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ports/tcp/wire.hpp"

namespace lockstep::tcp {

/// How two ranks authenticate each other, in three messages:
///   rank 0:  title, its nonce
///   peer:    its nonce, tag of (both nonces, what follows), job, rank, world, node
///   rank 0:  tag of (both nonces, what follows), "y" or "n" and the reason
/// A tag is SipHash with the meeting's secret as key. So neither a stranger nor a recorded
/// conversation passes, and a peer that connected to a stranger notices. Messages are short: a peer
/// that has not passed cannot make rank 0 hold more than `handshake_limit` bytes.
constexpr std::size_t handshake_limit = 1024;

/// Strangers may say nothing. So there are few at a time, for a few seconds; when others wait for
/// their place, the oldest that have said nothing have only a moment. A thousand ranks take four
/// turns of one that computes.
constexpr std::size_t most_candidates = 256;
constexpr double silent_s = 10, moment_s = 0.25;

using Nonce = std::array<std::uint8_t, 16>;
Nonce new_nonce();

/// What a peer says about itself.
struct Hello {
  std::string job;
  int rank = 0, world = 0;
  std::string node;

  static void fields(auto& self, auto&& visit) {
    visit(self.job, self.rank, self.world, self.node);
  }
};

std::string make_greeting(const Nonce& host);
/// Empty when the sender is not a rank 0 of lockstep.
std::optional<Nonce> read_greeting(std::string_view message);

std::string make_hello(const Key& secret, const Nonce& host, const Nonce& peer, const Hello& hello);
struct HeardHello {
  Nonce peer;
  Hello hello;
};

/// Empty when the peer does not know the secret.
std::optional<HeardHello> read_hello(const Key& secret, const Nonce& host,
                                     std::string_view message);

/// `refusal` is empty for a peer that is let in.
std::string make_answer(const Key& secret, const Nonce& host, const Nonce& peer,
                        std::string_view refusal);
/// The refusal, empty when let in; nothing when the sender does not know the secret.
std::optional<std::string> read_answer(const Key& secret, const Nonce& host, const Nonce& peer,
                                       std::string_view message);

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
  int strangers() const { return strangers_; }        ///< how many did not know the secret
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

/// Where a rank listens, and the secret that lets other ranks in.
struct ListenerCard {
  Key secret{};
  std::uint16_t port = 0;
  std::vector<std::string> addresses;  ///< of the rank's machine, numeric

  static void fields(auto& self, auto&& visit) { visit(self.secret, self.port, self.addresses); }
};

/// One try to connect to a rank that listens. It tries one address after the other: for a second
/// until the connection is made, for four until a rank greets, and for four more until that rank,
/// which may compute between the two, lets this one in. It never blocks, so this rank can do other
/// work meanwhile.
class ConnectAttempt {
 public:
  /// `purpose` stands for the job in the hello.
  ConnectAttempt(const ListenerCard& card, std::string purpose, int rank, int world,
                 std::string node = {});
  /// Advances without waiting. Returns the wire once the listener has let this rank in.
  std::optional<Wire> poll();
  bool failed() const { return at_ >= addresses_.size() || !refusal_.empty(); }
  const std::string& address() const { return addresses_.at(at_); }  ///< the one being tried
  const std::string& refusal() const { return refusal_; }  ///< what a rank that listens has said
  std::string fault() const;                               ///< at the last address that failed
  bool stood() const { return stood_; }  ///< at some address there was a connection
  void add_to(std::vector<pollfd>& polled) const;

 private:
  void try_next(std::size_t at);
  const char* hear();  ///< why the listener is not at this address; else null
  void note_fault(const char* fault);

  Key secret_;
  std::uint16_t port_;
  std::vector<std::string> addresses_;
  Hello hello_;
  std::size_t at_ = 0;
  double began_s_ = 0;  ///< when the address was first tried, or its rank's greeting came
  Socket coming_;       ///< until the connection is made
  Wire wire_;
  std::optional<Nonce> server_;  ///< the listener's, after its first message
  Nonce mine_{};
  bool let_in_ = false, stood_ = false;
  std::string refusal_;
  const char* fault_ = nullptr;
  std::string failed_address_;
};

}  // namespace lockstep::tcp
