#include "ports/tcp/connect_attempt.hpp"

#include <fmt/core.h>

#include <utility>

#include "lockstep/base/clock.hpp"

namespace lockstep::tcp {
namespace {

constexpr double until_connected_s = 1, until_answered_s = 4;

}  // namespace

ConnectAttempt::ConnectAttempt(const ListenerCard& card, std::string purpose, int rank, int world,
                               std::string node)
    : secret_(card.secret),
      port_(card.port),
      addresses_(card.addresses),
      hello_{std::move(purpose), rank, world, std::move(node)} {
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
  std::string fault = hear();
  if (let_in_) return std::move(wire_);
  if (fault.empty() && now_s() - began_s_ >= (coming_ ? until_connected_s : until_answered_s))
    fault = coming_ ? not_reached() : "the rank that listens there does not answer";
  if (fault.empty() || !refusal_.empty()) return std::nullopt;
  fault_ = fmt::format("{} port {}: {}", address(), port_, fault);
  try_next(at_ + 1);
  return std::nullopt;
}

std::string ConnectAttempt::not_reached() const {
  const std::string interface = interface_to(address());
  return interface.empty() ? "no way leads there" : "no connection through " + interface;
}

std::string ConnectAttempt::hear() {
  if (coming_) {
    const std::optional<bool> stands = connected(coming_);
    if (!stands) return "";
    if (!*stands) return not_reached();
    stood_ = true;
    wire_ = Wire(std::move(coming_), handshake_limit);
  }
  wire_.flush();
  const auto message = wire_.receive();
  if (server_) {
    constexpr const char* stranger = "what listens there does not know this meeting's secret";
    if (!message) return wire_.open() ? "" : stranger;
    const auto refusal = read_answer(secret_, *server_, mine_, *message);
    if (!refusal) return stranger;
    let_in_ = refusal->empty();
    refusal_ = *refusal;
    return "";
  }
  constexpr const char* other = "what listens there is not a rank of lockstep";
  if (!message) return wire_.open() ? "" : other;
  server_ = read_greeting(*message);
  if (!server_) return other;
  began_s_ = now_s();
  mine_ = new_nonce();
  wire_.send(make_hello(secret_, *server_, mine_, hello_));
  return "";
}

void ConnectAttempt::add_to(std::vector<pollfd>& polled) const {
  if (coming_) polled.push_back({coming_.get(), POLLOUT, 0});
  if (wire_.open()) polled.push_back({wire_.handle(), POLLIN, 0});
}

}  // namespace lockstep::tcp
