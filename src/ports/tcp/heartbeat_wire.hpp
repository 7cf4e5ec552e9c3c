#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/absence.hpp"
#include "lockstep/comm/activity.hpp"
#include "ports/tcp/handshake.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::comm {

/// Where rank 0's heartbeat listens, and the secret that lets a rank in.
struct HeartbeatCard {
  Key secret{};
  std::uint16_t port = 0;
  std::vector<std::string> addresses;  ///< of rank 0's machine, numeric

  static void fields(auto& self, auto&& visit) { visit(self.secret, self.port, self.addresses); }
};

/// What a peer's hello calls this conversation, where others name their job.
constexpr const char* heartbeat_purpose = "heartbeat";
constexpr std::size_t heartbeat_message_limit = 1 << 16;

/// The messages. A beat says where its sender is.
constexpr char beat_mark = 'b', goodbye_mark = 'g', failure_mark = 'f', end_mark = 'e',
               question_mark = 'q', finding_mark = 'a';
std::string make_beat(const Activity& activity);
std::optional<Activity> read_beat(std::string_view message);
/// A failure, or rank 0's word that all shall end: the status to end with, and why.
std::string make_end(char mark, int status, std::string_view why);
struct End {
  int status = 1;
  std::string why;
};
End read_end(std::string_view message);
/// A rank asks rank 0 who keeps it waiting.
struct AbsenceQuestion {
  std::uint64_t number = 0;  ///< of its asker's; the finding repeats it
  double waited_s = 0;

  static void fields(auto& self, auto&& visit) { visit(self.number, self.waited_s); }
};
std::string make_question(const AbsenceQuestion& question);
AbsenceQuestion read_question(std::string_view message);
struct AbsenceFinding {
  std::uint64_t number = 0;
  std::optional<Absence> absence;

  static void fields(auto& self, auto&& visit) { visit(self.number, self.absence); }
};
std::string make_finding(const AbsenceFinding& finding);
AbsenceFinding read_finding(std::string_view message);

/// The other ranks: one try to be let in by rank 0, on one address after the other, a second of
/// patience for each, or four for one that takes the connection. It never waits: a rank that tries
/// in vain still hears and judges.
class ConnectAttempt {
 public:
  ConnectAttempt(const HeartbeatCard& card, int rank, int world);
  /// Goes on as far as that goes at once: the wire, once rank 0 has let this rank in.
  std::optional<Wire> poll();
  bool failed() const { return at_ >= addresses_.size(); }
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
  std::optional<Nonce> server_;  ///< rank 0's, once it has greeted
  Nonce mine_{};
  bool let_in_ = false;
};

}  // namespace lockstep::comm
