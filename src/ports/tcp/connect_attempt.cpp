#include "ports/tcp/connect_attempt.hpp"

#include <utility>

#include "lockstep/base/clock.hpp"

namespace lockstep::tcp {
namespace {

constexpr double until_connected_s = 1, until_answered_s = 4;

}  // namespace

ConnectAttempt::ConnectAttempt(const ListenerCard& card, const char* purpose, int rank, int world)
    : secret_(card.secret),
      port_(card.port),
      addresses_(card.addresses),
      purpose_(purpose),
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
  const bool patient = now_s() - began_s_ < (coming_ ? until_connected_s : until_answered_s);
  if (!heard || (!let_in_ && !patient)) try_next(at_ + 1);
  if (!let_in_) return std::nullopt;
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
  began_s_ = now_s();
  mine_ = new_nonce();
  wire_.send(make_hello(secret_, *server_, mine_, {purpose_, rank_, world_, ""}));
  return true;
}

void ConnectAttempt::add_to(std::vector<pollfd>& polled) const {
  if (coming_) polled.push_back({coming_.get(), POLLOUT, 0});
  if (wire_.open()) polled.push_back({wire_.handle(), POLLIN, 0});
}

}  // namespace lockstep::tcp
