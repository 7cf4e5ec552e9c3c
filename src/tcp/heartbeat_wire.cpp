#include "tcp/heartbeat_wire.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>
#include <utility>

#include "lockstep/base/clock.hpp"

namespace lockstep::comm {
namespace {

constexpr std::string_view purpose = "heartbeat";
constexpr std::size_t message_bytes = 1 << 16;
constexpr double until_connected_s = 1, until_let_in_s = 4;

/// Empty for what no other machine can use.
std::string numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    const auto& ip = *reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &ip.sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    const auto& ip = *reinterpret_cast<const sockaddr_in6*>(address);
    if (!IN6_IS_ADDR_LINKLOCAL(&ip.sin6_addr))
      inet_ntop(AF_INET6, &ip.sin6_addr, text, sizeof text);
  }
  return text;
}

}  // namespace

std::string to_text(const HeartbeatCard& card) {
  std::string text(reinterpret_cast<const char*>(card.secret.data()), card.secret.size());
  text += std::to_string(card.port) + '\n';
  for (const std::string& address : card.addresses) text += address + '\n';
  return text;
}

HeartbeatCard read_heartbeat_card(const std::string& text) {
  HeartbeatCard card;
  std::memcpy(card.secret.data(), text.data(), card.secret.size());
  std::istringstream lines(text.substr(card.secret.size()));
  lines >> card.port;
  for (std::string address; lines >> address;) card.addresses.push_back(address);
  return card;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    const bool usable = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || one->ifa_addr == nullptr) continue;
    if (const std::string text = numeric(one->ifa_addr); !text.empty()) found.push_back(text);
  }
  return found;
}

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
  return fmt::format("{} {} {}", mark, status, why.substr(0, message_bytes / 2));
}

End read_end(std::string_view message) {
  std::istringstream words{std::string(message)};
  char mark = 0;
  End end;
  words >> mark >> end.status >> std::ws;
  std::getline(words, end.why, '\0');
  return end;
}

HeartbeatDoor::HeartbeatDoor(const Key& secret, Listener listener, int world)
    : secret_(secret), listener_(std::move(listener)), world_(world) {}

std::vector<HeartbeatDoor::Arrival> HeartbeatDoor::let_in() {
  while (Socket socket = accept_on(listener_)) {
    Candidate& candidate =
        candidates_.emplace_back(Wire(std::move(socket), handshake_limit), new_nonce());
    candidate.wire.send(make_greeting(candidate.nonce));
    if (candidates_.size() > most_candidates) candidates_.pop_front();
  }
  std::vector<Arrival> arrivals;
  candidates_.remove_if([&](Candidate& candidate) {
    candidate.wire.flush();
    const auto message = candidate.wire.receive();
    if (!message) return !candidate.wire.open();
    const auto heard = read_hello(secret_, candidate.nonce, *message);
    if (!heard) return true;
    const Hello& hello = heard->hello;
    if (hello.job != purpose || hello.world != world_ || hello.rank <= 0 || hello.rank >= world_)
      return true;
    candidate.wire.send(make_answer(secret_, candidate.nonce, heard->peer, ""));
    candidate.wire.set_limit(message_bytes);
    arrivals.push_back({hello.rank, std::move(candidate.wire)});
    return true;
  });
  return arrivals;
}

void HeartbeatDoor::add_to(std::vector<pollfd>& polled) const {
  polled.push_back({listener_.socket.get(), POLLIN, 0});
  for (const Candidate& candidate : candidates_)
    polled.push_back({candidate.wire.handle(), POLLIN, 0});
}

Knock::Knock(const HeartbeatCard& card, int rank, int world)
    : secret_(card.secret),
      port_(card.port),
      addresses_(card.addresses),
      rank_(rank),
      world_(world) {
  try_next(0);
}

void Knock::try_next(std::size_t at) {
  wire_.close();
  host_.reset();
  for (at_ = at; !in_vain(); ++at_) {
    coming_ = begin_connection(address(), port_);
    began_s_ = now_s();
    if (coming_) return;
  }
}

std::optional<Wire> Knock::go_on() {
  if (in_vain()) return std::nullopt;
  const bool heard = hear();
  const bool patient = now_s() - began_s_ < (coming_ ? until_connected_s : until_let_in_s);
  if (!heard || (!let_in_ && !patient)) try_next(at_ + 1);
  if (!let_in_) return std::nullopt;
  wire_.set_limit(message_bytes);
  return std::move(wire_);
}

bool Knock::hear() {
  if (coming_) {
    const std::optional<bool> stands = connected(coming_, 0);
    if (!stands) return true;
    if (!*stands) return false;
    wire_ = Wire(std::move(coming_), handshake_limit);
  }
  wire_.flush();
  const auto message = wire_.receive();
  if (!message) return wire_.open();
  if (host_) {
    let_in_ = read_answer(secret_, *host_, mine_, *message) == "";
    return let_in_;
  }
  host_ = read_greeting(*message);
  if (!host_) return false;
  mine_ = new_nonce();
  wire_.send(make_hello(secret_, *host_, mine_, {std::string(purpose), rank_, world_, ""}));
  return true;
}

void Knock::add_to(std::vector<pollfd>& polled) const {
  if (coming_) polled.push_back({coming_.get(), POLLOUT, 0});
  if (wire_.open()) polled.push_back({wire_.handle(), POLLIN, 0});
}

}  // namespace lockstep::comm
