#include "ports/tcp/meeting/handshake_server.hpp"

#include <utility>

#include "lockstep/base/clock.hpp"

namespace lockstep::tcp {
namespace {

constexpr int most_rounds = 16;  // of new connections in one call: strangers must not hold it up

}  // namespace

HandshakeServer::HandshakeServer(const Key& secret, Listener listener)
    : secret_(secret), listener_(std::move(listener)) {}

void HandshakeServer::admit(const Refusal& refusal, const LetIn& let_in) {
  // First those who have spoken come in: when they had to wait for this, it was not their fault.
  judge(refusal, let_in);
  make_room();
  // Peers that have given up since they connected leave their places at once.
  for (int round = 0; round < most_rounds && !full(); ++round) {
    accept_all();
    const bool more = full();
    judge(refusal, let_in);
    if (!more) break;
  }
}

void HandshakeServer::judge(const Refusal& refusal, const LetIn& let_in) {
  candidates_.remove_if([&](Candidate& candidate) { return judged(candidate, refusal, let_in); });
}

void HandshakeServer::accept_all() {
  while (!full()) {
    Socket socket = accept_on(listener_);
    if (!socket) break;
    Candidate& candidate =
        candidates_.emplace_back(Wire(std::move(socket), handshake_limit), new_nonce(), now_s());
    candidate.wire.send(make_greeting(candidate.nonce));
  }
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
  const bool gave_up = candidate.wire.ended();  // then it comes again
  candidate.wire.send(make_answer(secret_, candidate.nonce, heard->peer, why_not));
  const bool told = !gave_up && candidate.wire.open() && !candidate.wire.unsent();
  if (why_not.empty() && told) let_in(heard->hello, std::move(candidate.wire));
  return true;
}

void HandshakeServer::wait(std::vector<Wire*> wires) {
  for (Candidate& candidate : candidates_) wires.push_back(&candidate.wire);
  wait_for(wires, full() ? nullptr : &listener_);
}

void HandshakeServer::add_to(std::vector<pollfd>& polled) const {
  if (!full()) polled.push_back({listener_.socket.get(), POLLIN, 0});
  for (const Candidate& candidate : candidates_)
    polled.push_back({candidate.wire.handle(), POLLIN, 0});
}

}  // namespace lockstep::tcp
