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

/// Stands for the job in a heartbeat's hello.
constexpr const char* heartbeat_purpose = "heartbeat";
constexpr std::size_t heartbeat_message_limit = 1 << 16;

/// The messages. A beat says what its sender is doing.
constexpr char beat_mark = 'b', goodbye_mark = 'g', failure_mark = 'f', end_mark = 'e',
               question_mark = 'q', finding_mark = 'a';
std::string make_beat(const Activity& activity);
std::optional<Activity> read_beat(std::string_view message);
/// A failure, or rank 0's order to end: the status to end with, and why.
std::string make_end(char mark, int status, std::string_view why);
struct End {
  int status = 1;
  std::string why;
};
End read_end(std::string_view message);
/// A rank asks rank 0 which ranks keep it waiting.
struct AbsenceQuestion {
  std::uint64_t number = 0;  ///< counted by the rank that asks; the finding repeats it
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

/// On the other ranks: one try to connect to rank 0. It tries one address after the other for a
/// second each, or for four when the connection is accepted. It never blocks, so the rank can do
/// other work meanwhile.
class ConnectAttempt {
 public:
  ConnectAttempt(const HeartbeatCard& card, int rank, int world);
  /// Advances without waiting. Returns the wire once rank 0 has let this rank in.
  std::optional<Wire> poll();
  bool failed() const { return at_ >= addresses_.size(); }
  const std::string& address() const { return addresses_.at(at_); }  ///< the one being tried
  void add_to(std::vector<pollfd>& polled) const;

 private:
  void try_next(std::size_t at);
  bool hear();  ///< false when no rank 0 is at this address
  Key secret_;
  std::uint16_t port_;
  std::vector<std::string> addresses_;
  int rank_, world_;
  std::size_t at_ = 0;
  double began_s_ = 0;
  Socket coming_;  ///< until the connection is made
  Wire wire_;
  std::optional<Nonce> server_;  ///< rank 0's, after its first message
  Nonce mine_{};
  bool let_in_ = false;
};

}  // namespace lockstep::comm
