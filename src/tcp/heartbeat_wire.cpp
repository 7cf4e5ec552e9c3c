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

#include "tcp/countdown.hpp"

namespace lockstep::comm {
namespace {

constexpr std::string_view purpose = "heartbeat";
constexpr std::size_t message_bytes = 1 << 16;
constexpr double patience_s = 1;

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

/// A closed wire when the other side is not rank 0's watcher.
Wire introduce(Socket socket, const Key& secret, int rank, int world) {
  Wire wire(std::move(socket), handshake_limit);
  const auto greeting = next_message(wire, patience_s);
  const auto host = greeting ? read_greeting(*greeting) : std::nullopt;
  if (!host) return {};
  const Nonce mine = new_nonce();
  wire.send(make_hello(secret, *host, mine, {std::string(purpose), rank, world, ""}));
  const auto answer = next_message(wire, patience_s);
  if (!answer || read_answer(secret, *host, mine, *answer) != "") return {};
  wire.set_limit(message_bytes);
  return wire;
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

void HeartbeatDoor::add_handles(std::vector<int>& handles) const {
  handles.push_back(listener_.socket.get());
  for (const Candidate& candidate : candidates_) handles.push_back(candidate.wire.handle());
}

Wire reach_rank_0(HeartbeatCard& card, int rank, int world) {
  for (const std::string& address : card.addresses) {
    Socket socket = connect_to(address, card.port, patience_s);
    if (!socket) continue;
    Wire wire = introduce(std::move(socket), card.secret, rank, world);
    if (!wire.open()) continue;
    card.addresses = {std::string(address)};
    return wire;
  }
  return {};
}

}  // namespace lockstep::comm
