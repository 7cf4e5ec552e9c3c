#pragma once

#include <poll.h>

#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/activity.hpp"
#include "tcp/handshake.hpp"
#include "tcp/wire.hpp"

namespace lockstep::comm {

/// What rank 0 tells the others of where its watcher listens.
struct HeartbeatCard {
  Key secret{};
  std::uint16_t port = 0;
  std::vector<std::string> addresses;  ///< of rank 0's machine, numeric
};
std::string to_text(const HeartbeatCard& card);
HeartbeatCard read_heartbeat_card(const std::string& text);

/// This machine's addresses under which other machines may find it.
std::vector<std::string> own_addresses();

/// The messages. A beat says where its sender stands.
constexpr char beat_mark = 'b', goodbye_mark = 'g', failure_mark = 'f', end_mark = 'e';
std::string make_beat(const Activity& activity);
std::optional<Activity> read_beat(std::string_view message);
/// A failure, or rank 0's word that all shall end: the status to end with, and why.
std::string make_end(char mark, int status, std::string_view why);
struct End {
  int status = 1;
  std::string why;
};
End read_end(std::string_view message);

/// Rank 0's door: lets in who knows the secret. The same rank may come again, when its connection
/// has stalled.
class HeartbeatDoor {
 public:
  HeartbeatDoor(const Key& secret, Listener listener, int world);
  struct Arrival {
    int rank;
    Wire wire;
  };
  std::vector<Arrival> let_in();
  void add_to(std::vector<pollfd>& polled) const;

 private:
  struct Candidate {
    Wire wire;
    Nonce nonce;
  };
  Key secret_;
  Listener listener_;
  int world_;
  std::list<Candidate> candidates_;
};

/// The other ranks: one try to be let in by rank 0, on one address after the other, a second of
/// patience for each, or four for one that takes the connection. It never waits: a rank that tries
/// in vain still hears and judges.
class Knock {
 public:
  Knock(const HeartbeatCard& card, int rank, int world);
  /// Comes on as far as that goes at once: the wire, once rank 0 has let this rank in.
  std::optional<Wire> go_on();
  bool in_vain() const { return at_ >= addresses_.size(); }
  const std::string& address() const { return addresses_.at(at_); }  ///< that is tried
  void add_to(std::vector<pollfd>& polled) const;

 private:
  void try_next(std::size_t at);
  bool hear();  ///< false when this address leads to no rank 0
  Key secret_;
  std::uint16_t port_;
  std::vector<std::string> addresses_;
  int rank_, world_;
  std::size_t at_ = 0;
  double began_s_ = 0;
  Socket coming_;  ///< as long as the connection does not stand
  Wire wire_;
  std::optional<Nonce> host_;  ///< rank 0's, once it has greeted
  Nonce mine_{};
  bool let_in_ = false;
};

}  // namespace lockstep::comm
