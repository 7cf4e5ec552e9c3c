#pragma once

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
  void add_handles(std::vector<int>& handles) const;  ///< to be polled for reading

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

/// The other ranks: one try to reach rank 0, or a closed wire. Takes up to three seconds for each
/// address that does not answer; the one that does is the only one to be tried again.
Wire reach_rank_0(HeartbeatCard& card, int rank, int world);

}  // namespace lockstep::comm
