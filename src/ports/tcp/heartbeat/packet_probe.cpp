#include "ports/tcp/heartbeat/packet_probe.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "lockstep/base/clock.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::tcp {
namespace {

// Each way is used about twice a second. Not all at once: the packets of a thousand nodes would
// overflow the others' buffers, full ones first.
constexpr std::size_t turns_of_all = 25;

// That many small packets without a full one are no accident.
constexpr int enough = 3;

constexpr std::uint32_t udp_header = 8, ip4_header = 20, ip6_header = 40, largest = 65535;

struct Packet {
  std::uint64_t tag = 0;  ///< of the rest
  std::uint64_t round = 0;
  int from = 0, to = 0;
  std::uint32_t way = 0, bytes = 0;
  bool full = false;

  static void fields(auto& self, auto&& visit) {
    visit(self.tag, self.round, self.from, self.to, self.way, self.bytes, self.full);
  }
};

std::string sealed(const Key& secret, Packet packet) {
  const std::string text = comm::write_record(packet);
  packet.tag = siphash(secret, std::string_view(text).substr(sizeof packet.tag));
  return comm::write_record(packet);
}

std::optional<Packet> opened(const Key& secret, std::string_view text) {
  static const std::size_t size = comm::write_record(Packet{}).size();
  if (text.size() < size) return std::nullopt;
  const Packet packet = comm::read_record<Packet>(text.substr(0, size));
  const bool right = siphash(secret, text.substr(0, size).substr(sizeof packet.tag)) == packet.tag;
  return right ? std::optional(packet) : std::nullopt;
}

const sockaddr* plain(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

bool is_ip4(const sockaddr_storage& address) {
  const auto& ip6 = reinterpret_cast<const sockaddr_in6&>(address);
  return address.ss_family == AF_INET || IN6_IS_ADDR_V4MAPPED(&ip6.sin6_addr);
}

/// For a socket of that family, which may be IPv6 when the address is IPv4.
std::optional<sockaddr_storage> to_address(const std::string& text, std::uint16_t port,
                                           int family) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST | AI_V4MAPPED;
  addrinfo* found = nullptr;
  if (::getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    return std::nullopt;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  sockaddr_storage address{};
  std::memcpy(&address, found->ai_addr, found->ai_addrlen);
  return address;
}

/// The largest packet that this node sends to the address now, by what it knows; 0: none.
std::uint32_t mtu_to(const sockaddr_storage& address) {
  const Socket socket(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int level = is_ip4(address) ? static_cast<int>(IPPROTO_IP) : IPPROTO_IPV6;
  int mtu = 0;
  socklen_t size = sizeof mtu;
  const bool known =
      socket && ::connect(socket.get(), plain(address), sizeof address) == 0 &&
      ::getsockopt(socket.get(), level, level == IPPROTO_IP ? IP_MTU : IPV6_MTU, &mtu, &size) == 0;
  return known && mtu > 0 ? std::min(static_cast<std::uint32_t>(mtu), largest) : 0;
}

/// Of the card that has this address; 0 when none has.
std::uint32_t mtu_of_own(const std::string& address, const Socket& socket) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return 0;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char text[NI_MAXHOST] = "";
    ::getnameinfo(one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6),
                  text, sizeof text, nullptr, 0, NI_NUMERICHOST);
    if (address != text) continue;
    ifreq card{};
    std::strncpy(card.ifr_name, one->ifa_name, IFNAMSIZ - 1);
    if (::ioctl(socket.get(), SIOCGIFMTU, &card) != 0) return 0;
    return std::min(static_cast<std::uint32_t>(card.ifr_mtu), largest);
  }
  return 0;
}

std::optional<sockaddr_storage> bound_to(const Socket& socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  const bool known = ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0;
  return known ? std::optional(bound) : std::nullopt;
}

void set(const Socket& socket, int level, int name, int value) {
  ::setsockopt(socket.get(), level, name, &value, sizeof value);
}

}  // namespace

Socket open_packet_socket() {
  for (const int family : {AF_INET6, AF_INET}) {
    Socket socket(::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) continue;  // this kernel has no such family
    set(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    // Packets are not cut into pieces, just as those of connections.
    set(socket, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
    set(socket, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
    set(socket, SOL_SOCKET, SO_RCVBUF, 1 << 22);
    sockaddr_storage any{};
    any.ss_family = static_cast<sa_family_t>(family);
    if (::bind(socket.get(), plain(any), sizeof any) == 0) return socket;
  }
  return {};
}

PacketPlace place_of(const Socket& socket, std::vector<std::string> addresses) {
  PacketPlace place{0, std::move(addresses), {}};
  const auto bound = bound_to(socket);
  if (!bound) return place;
  place.port = ntohs(reinterpret_cast<const sockaddr_in&>(*bound).sin_port);
  for (const std::string& address : place.addresses)
    place.mtus.push_back(mtu_of_own(address, socket));
  return place;
}

PacketProbe::PacketProbe(int rank, const Key& secret, Socket socket,
                         const std::map<int, PacketPlace>& places)
    : rank_(rank), secret_(secret), socket_(std::move(socket)) {
  if (!socket_) return;
  for (const auto& [other, place] : places) add_ways(other, place);
  // Each node begins with the one after it, so that not all send to the same one.
  std::stable_partition(ways_.begin(), ways_.end(),
                        [&](const Way& way) { return way.rank > rank_; });
}

void PacketProbe::add_ways(int rank, const PacketPlace& place) {
  const int family = bound_to(socket_).value().ss_family;
  for (std::uint32_t i = 0; i < place.addresses.size() && i < place.mtus.size(); ++i) {
    const auto address = to_address(place.addresses[i], place.port, family);
    const std::uint32_t bytes = address ? std::min(mtu_to(*address), place.mtus[i]) : 0;
    if (bytes > 0) ways_.push_back({rank, i, *address, bytes});
  }
}

void PacketProbe::begin(std::uint64_t round) {
  round_ = round;
  turns_ = 0;
  next_s_ = now_s();
}

void PacketProbe::advance() {
  receive();
  const double now = now_s();
  // A caller that comes late makes up for some turns, not for a long pause.
  for (next_s_ = std::max(next_s_, now - 4 * turn_s); active() && next_s_ <= now;
       next_s_ += turn_s) {
    const std::size_t at = static_cast<std::size_t>(turns_++) % turns_of_all;
    const std::size_t end = (at + 1) * ways_.size() / turns_of_all;
    for (std::size_t i = at * ways_.size() / turns_of_all; i < end; ++i)
      for (const bool full : {false, true}) send(ways_[i], full);
  }
}

void PacketProbe::send(const Way& way, bool full) {
  const std::uint32_t bytes = std::min(mtu_to(way.address), way.bytes);
  const std::uint32_t head = udp_header + (is_ip4(way.address) ? ip4_header : ip6_header);
  std::string text = sealed(secret_, {0, round_, rank_, way.rank, way.number, way.bytes, full});
  // Where the size is not known, small packets alone would accuse the network.
  if (bytes <= head + text.size()) return;
  if (full) text.resize(bytes - head);
  ::sendto(socket_.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL, plain(way.address),
           sizeof way.address);
}

void PacketProbe::receive() {
  if (!socket_) return;
  char text[128];
  for (int i = 0; i < 1024; ++i) {  // strangers may send for ever
    const ssize_t got = ::recv(socket_.get(), text, sizeof text, MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0) return;
    const std::string_view head(text, std::min(static_cast<std::size_t>(got), sizeof text));
    const std::optional<Packet> packet = opened(secret_, head);
    if (!packet || packet->to != rank_) continue;
    Came& came = came_[{packet->from, packet->way}];
    if (came.round != packet->round) came = {packet->round, packet->bytes, 0, 0};
    ++(packet->full ? came.full : came.small);
  }
}

bool PacketProbe::complete() const {
  std::map<int, std::size_t> full, ways;
  for (const auto& [way, came] : came_)
    if (came.round == round_ && came.full > 0) ++full[way.first];
  for (const Way& way : ways_) ++ways[way.rank];
  return std::all_of(ways.begin(), ways.end(),
                     [&](const auto& one) { return full[one.first] >= one.second; });
}

std::vector<liveness::LinkReport::Lost> PacketProbe::lost() const {
  std::vector<liveness::LinkReport::Lost> lost;
  for (const auto& [way, came] : came_) {
    const bool named = !lost.empty() && lost.back().from == way.first;
    if (came.round == round_ && came.full == 0 && came.small >= enough && !named)
      lost.push_back({way.first, came.bytes});
  }
  return lost;
}

void PacketProbe::add_to(std::vector<pollfd>& polled) const {
  if (socket_) polled.push_back({socket_.get(), POLLIN, 0});
}

}  // namespace lockstep::tcp
