#include "ports/tcp/heartbeat_wire.hpp"

#include <fmt/core.h>

#include <sstream>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::comm {
namespace {

constexpr double until_connected_s = 1, until_let_in_s = 4;

}  // namespace

std::string make_beat(const Activity& activity) {
  return fmt::format("{} {} {} {} {} {} {}", beat_mark, activity.step,
                     static_cast<int>(activity.phase), activity.bucket, activity.bytes,
                     static_cast<int>(activity.waiting), activity.movements);
}

std::optional<Activity> read_beat(std::string_view message) {
  std::istringstream words{std::string(message)};
  char mark = 0;
  int phase = 0;
  Activity activity;
  words >> mark >> activity.step >> phase >> activity.bucket >> activity.bytes >>
      activity.waiting >> activity.movements;
  if (!words || mark != beat_mark) return std::nullopt;
  activity.phase = static_cast<Phase>(phase);
  return activity;
}

std::string make_end(char mark, int status, std::string_view why) {
  return fmt::format("{} {} {}", mark, status, why.substr(0, heartbeat_message_limit / 2));
}

End read_end(std::string_view message) {
  std::istringstream words{std::string(message)};
  char mark = 0;
  End end;
  words >> mark >> end.status >> std::ws;
  std::getline(words, end.why, '\0');
  return end;
}

std::string make_question(const AbsenceQuestion& question) {
  return question_mark + write_record(question);
}

AbsenceQuestion read_question(std::string_view message) {
  return read_record<AbsenceQuestion>(message.substr(1));
}

std::string make_finding(const AbsenceFinding& finding) {
  return finding_mark + write_record(finding);
}

AbsenceFinding read_finding(std::string_view message) {
  return read_record<AbsenceFinding>(message.substr(1));
}

ConnectAttempt::ConnectAttempt(const HeartbeatCard& card, int rank, int world)
    : secret_(card.secret),
      port_(card.port),
      addresses_(card.addresses),
      rank_(rank),
      world_(world) {
  try_next(0);
}

void ConnectAttempt::try_next(std::size_t at) {
  wire_.close();
  server_.reset();
  for (at_ = at; !failed(); ++at_) {
    coming_ = begin_connection(address(), port_);
    began_s_ = now_s();
    if (coming_) return;
  }
}

std::optional<Wire> ConnectAttempt::poll() {
  if (failed()) return std::nullopt;
  const bool heard = hear();
  const bool patient = now_s() - began_s_ < (coming_ ? until_connected_s : until_let_in_s);
  if (!heard || (!let_in_ && !patient)) try_next(at_ + 1);
  if (!let_in_) return std::nullopt;
  wire_.set_limit(heartbeat_message_limit);
  return std::move(wire_);
}

bool ConnectAttempt::hear() {
  if (coming_) {
    const std::optional<bool> stands = connected(coming_, 0);
    if (!stands) return true;
    if (!*stands) return false;
    wire_ = Wire(std::move(coming_), handshake_limit);
  }
  wire_.flush();
  const auto message = wire_.receive();
  if (!message) return wire_.open();
  if (server_) {
    let_in_ = read_answer(secret_, *server_, mine_, *message) == "";
    return let_in_;
  }
  server_ = read_greeting(*message);
  if (!server_) return false;
  mine_ = new_nonce();
  wire_.send(make_hello(secret_, *server_, mine_, {heartbeat_purpose, rank_, world_, ""}));
  return true;
}

void ConnectAttempt::add_to(std::vector<pollfd>& polled) const {
  if (coming_) polled.push_back({coming_.get(), POLLOUT, 0});
  if (wire_.open()) polled.push_back({wire_.handle(), POLLIN, 0});
}

}  // namespace lockstep::comm
