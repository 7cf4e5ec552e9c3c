#include "ports/tcp/handshake_server.hpp"

#include <utility>

#include "lockstep/base/clock.hpp"

namespace lockstep::comm {

HandshakeServer::HandshakeServer(const Key& secret, Listener listener)
    : secret_(secret), listener_(std::move(listener)) {}

void HandshakeServer::admit(const Refusal& refusal, const LetIn& let_in) {
  make_room();
  while (!full()) {
    Socket socket = accept_on(listener_);
    if (!socket) break;
    Candidate& candidate =
        candidates_.emplace_back(Wire(std::move(socket), handshake_limit), new_nonce(), now_s());
    candidate.wire.send(make_greeting(candidate.nonce));
  }
  candidates_.remove_if([&](Candidate& candidate) { return judged(candidate, refusal, let_in); });
}

void HandshakeServer::make_room() {
  const double patience_s = full() ? moment_s : silent_s, now = now_s();
  while (!candidates_.empty() && now - candidates_.front().came_s > patience_s)
    candidates_.pop_front();
}

bool HandshakeServer::judged(Candidate& candidate, const Refusal& refusal, const LetIn& let_in) {
  candidate.wire.flush();
  const auto message = candidate.wire.receive();
  if (!message) return !candidate.wire.open();
  const auto heard = read_hello(secret_, candidate.nonce, *message);
  if (!heard) {
    ++strangers_;
    return true;
  }
  const std::string why_not = refusal(heard->hello);
  candidate.wire.send(make_answer(secret_, candidate.nonce, heard->peer, why_not));
  if (why_not.empty()) let_in(heard->hello, std::move(candidate.wire));
  return true;
}

void HandshakeServer::wait() {
  std::vector<Wire*> wires;
  for (Candidate& candidate : candidates_) wires.push_back(&candidate.wire);
  wait_for(wires, full() ? nullptr : &listener_);
}

void HandshakeServer::add_to(std::vector<pollfd>& polled) const {
  if (!full()) polled.push_back({listener_.socket.get(), POLLIN, 0});
  for (const Candidate& candidate : candidates_)
    polled.push_back({candidate.wire.handle(), POLLIN, 0});
}

}  // namespace lockstep::comm
