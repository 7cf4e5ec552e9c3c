#include "ports/tcp/handshake_server.hpp"

#include <utility>

namespace lockstep::comm {

HandshakeServer::HandshakeServer(const Key& secret, Listener listener)
    : secret_(secret), listener_(std::move(listener)) {}

void HandshakeServer::admit(const Refusal& refusal, const LetIn& let_in) {
  while (Socket socket = accept_on(listener_)) {
    Candidate& candidate =
        candidates_.emplace_back(Wire(std::move(socket), handshake_limit), new_nonce());
    candidate.wire.send(make_greeting(candidate.nonce));
    if (candidates_.size() > most_candidates) candidates_.pop_front();
  }
  candidates_.remove_if([&](Candidate& candidate) { return judged(candidate, refusal, let_in); });
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
  wait_for(wires, &listener_);
}

void HandshakeServer::add_to(std::vector<pollfd>& polled) const {
  polled.push_back({listener_.socket.get(), POLLIN, 0});
  for (const Candidate& candidate : candidates_)
    polled.push_back({candidate.wire.handle(), POLLIN, 0});
}

}  // namespace lockstep::comm
