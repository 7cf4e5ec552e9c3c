#include "ports/tcp/meeting/handshake.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::tcp {
namespace {

constexpr std::string_view title = "lockstep meeting 2\n";
constexpr std::size_t tag_bytes = sizeof(std::uint64_t);

std::string text_of(const Nonce& nonce) {
  return {reinterpret_cast<const char*>(nonce.data()), nonce.size()};
}

Nonce nonce_of(std::string_view text) {
  Nonce nonce;
  std::memcpy(nonce.data(), text.data(), nonce.size());
  return nonce;
}

/// `from` prevents that one side replays a tag of the other.
std::string tag_of(const Key& secret, char from, const Nonce& host, const Nonce& peer,
                   std::string_view text) {
  const std::uint64_t tag =
      siphash(secret, from + text_of(host) + text_of(peer) + std::string(text));
  return {reinterpret_cast<const char*>(&tag), tag_bytes};
}

}  // namespace

Nonce new_nonce() {
  Nonce nonce;
  check(getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()),
        "getrandom");
  return nonce;
}

std::string make_greeting(const Nonce& host) { return std::string(title) + text_of(host); }

std::optional<Nonce> read_greeting(std::string_view message) {
  if (!message.starts_with(title) || message.size() != title.size() + Nonce().size())
    return std::nullopt;
  return nonce_of(message.substr(title.size()));
}

std::string make_hello(const Key& secret, const Nonce& host, const Nonce& peer,
                       const Hello& hello) {
  const std::string text = comm::write_record(hello);
  return text_of(peer) + tag_of(secret, 'p', host, peer, text) + text;
}

std::optional<HeardHello> read_hello(const Key& secret, const Nonce& host,
                                     std::string_view message) {
  constexpr std::size_t head = Nonce().size() + tag_bytes;
  if (message.size() < head) return std::nullopt;
  const Nonce peer = nonce_of(message);
  const std::string_view text = message.substr(head);
  if (message.substr(peer.size(), tag_bytes) != tag_of(secret, 'p', host, peer, text))
    return std::nullopt;
  return HeardHello{peer, comm::read_record<Hello>(text)};
}

std::string make_answer(const Key& secret, const Nonce& host, const Nonce& peer,
                        std::string_view refusal) {
  const std::string text = refusal.empty() ? "y" : "n" + std::string(refusal);
  return tag_of(secret, 'h', host, peer, text) + text;
}

std::optional<std::string> read_answer(const Key& secret, const Nonce& host, const Nonce& peer,
                                       std::string_view message) {
  if (message.size() <= tag_bytes) return std::nullopt;
  const std::string_view text = message.substr(tag_bytes);
  if (message.substr(0, tag_bytes) != tag_of(secret, 'h', host, peer, text)) return std::nullopt;
  return std::string(text.substr(1));
}

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

void HandshakeServer::add_to(std::vector<pollfd>& polled) const {
  if (!full()) polled.push_back({listener_.socket.get(), POLLIN, 0});
  for (const Candidate& candidate : candidates_)
    polled.push_back({candidate.wire.handle(), POLLIN, 0});
}

namespace {

constexpr double until_connected_s = 1, until_answered_s = 4;
constexpr const char* not_reached = "no connection";

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
    note_fault(not_reached);
  }
}

std::optional<Wire> ConnectAttempt::poll() {
  if (failed()) return std::nullopt;
  const char* fault = hear();
  if (let_in_) return std::move(wire_);
  if (!fault && now_s() - began_s_ >= (coming_ ? until_connected_s : until_answered_s))
    fault = coming_ ? not_reached : "the rank that listens there does not answer";
  if (!fault || !refusal_.empty()) return std::nullopt;
  note_fault(fault);
  try_next(at_ + 1);
  return std::nullopt;
}

void ConnectAttempt::note_fault(const char* fault) {
  fault_ = fault;
  failed_address_ = address();
}

std::string ConnectAttempt::fault() const {
  if (!fault_) return "";
  std::string why = fault_;
  if (fault_ == not_reached) {
    const std::string interface = interface_to(failed_address_);
    why = interface.empty() ? "no way leads there" : why + " through " + interface;
  }
  return fmt::format("{} port {}: {}", failed_address_, port_, why);
}

const char* ConnectAttempt::hear() {
  if (coming_) {
    const std::optional<bool> stands = connected(coming_);
    if (!stands) return nullptr;
    if (!*stands) return not_reached;
    stood_ = true;
    wire_ = Wire(std::move(coming_), handshake_limit);
  }
  wire_.flush();
  const auto message = wire_.receive();
  if (server_) {
    constexpr const char* stranger = "what listens there does not know this meeting's secret";
    if (!message) return wire_.open() ? nullptr : stranger;
    const auto refusal = read_answer(secret_, *server_, mine_, *message);
    if (!refusal) return stranger;
    let_in_ = refusal->empty();
    refusal_ = *refusal;
    return nullptr;
  }
  constexpr const char* other = "what listens there is not a rank of lockstep";
  if (!message) return wire_.open() ? nullptr : other;
  server_ = read_greeting(*message);
  if (!server_) return other;
  began_s_ = now_s();
  mine_ = new_nonce();
  wire_.send(make_hello(secret_, *server_, mine_, hello_));
  return nullptr;
}

void ConnectAttempt::add_to(std::vector<pollfd>& polled) const {
  if (coming_) polled.push_back({coming_.get(), POLLOUT, 0});
  if (wire_.open()) polled.push_back({wire_.handle(), POLLIN, 0});
}

}  // namespace lockstep::tcp
