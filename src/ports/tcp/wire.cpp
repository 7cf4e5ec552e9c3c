#include "ports/tcp/wire.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/http.hpp"

namespace lockstep::tcp {
namespace {

constexpr int poll_ms = 50;
constexpr int tcp_rto_max_ms = 44;  // linux/tcp.h has TCP_RTO_MAX_MS from Linux 6.15 on
constexpr std::size_t size_bytes = sizeof(std::uint32_t);

void set(int handle, int level, int name, int value) {
  setsockopt(handle, level, name, &value, sizeof value);  // it only helps: failure does not matter
}

/// Small messages are sent at once, and a lost node is noticed even when nothing is sent. What a
/// network lost while it was cut is sent again each second: by default a sender waits twice as long
/// each time, so that heartbeats may come 6 s after the network is back.
void prepare(int handle) {
  set(handle, IPPROTO_TCP, TCP_NODELAY, 1);
  set(handle, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(handle, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(handle, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(handle, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(handle, IPPROTO_TCP, tcp_rto_max_ms, 1000);
}

bool bind_to(int handle, int family, std::uint16_t port) {
  sockaddr_storage address{};
  socklen_t size = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    auto& ip = reinterpret_cast<sockaddr_in6&>(address);
    ip.sin6_family = AF_INET6;
    ip.sin6_addr = in6addr_any;
    ip.sin6_port = htons(port);
    size = sizeof(sockaddr_in6);
    set(handle, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  } else {
    auto& ip = reinterpret_cast<sockaddr_in&>(address);
    ip.sin_family = AF_INET;
    ip.sin_addr.s_addr = htonl(INADDR_ANY);
    ip.sin_port = htons(port);
  }
  return bind(handle, reinterpret_cast<const sockaddr*>(&address), size) == 0;
}

Socket open_socket(int family) {
  return Socket(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) found = nullptr;
  return {found, freeaddrinfo};
}

Socket begin(const addrinfo& address) {
  Socket socket = open_socket(address.ai_family);
  if (!socket) return {};
  prepare(socket.get());
  const bool begun = connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0;
  return begun || errno == EINPROGRESS ? std::move(socket) : Socket();
}

}  // namespace

Listener listen_on(std::span<const std::uint16_t> ports) {
  for (const int family : {AF_INET6, AF_INET}) {
    for (const std::uint16_t port : ports) {
      Socket socket = open_socket(family);
      if (!socket) break;  // this kernel has no such family
      set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
      if (!bind_to(socket.get(), family, port) || listen(socket.get(), SOMAXCONN) != 0) continue;
      const std::uint16_t taken = port_of(socket);
      return {std::move(socket), taken};
    }
  }
  throw Error("no port of " + std::to_string(ports.front()) + " to " +
              std::to_string(ports.back()) + " is free to listen on: " + std::strerror(errno));
}

Socket accept_on(const Listener& listener) {
  const auto accept = [&] {
    return Socket(accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  };
  Socket socket = accept();
  if (!socket && (errno == EMFILE || errno == ENFILE)) {
    const SpareDescriptors spare;
    accept();  // and closed: else it would wait, and wake the poll, for ever
    return {};
  }
  if (socket && among_the_last(socket.get())) return {};
  if (socket) prepare(socket.get());
  return socket;
}

void outlast_silence(const Socket& socket, unsigned seconds) {
  set(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(1000 * seconds));
}

Socket begin_connection(const std::string& address, std::uint16_t port) {
  const Addresses addresses = look_up(address, port, AI_NUMERICHOST);
  return addresses ? begin(*addresses) : Socket();
}

std::optional<bool> connected(const Socket& socket) {
  pollfd entry{socket.get(), POLLOUT, 0};
  if (poll(&entry, 1, 0) != 1) return std::nullopt;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

void Wire::send(std::string_view message) {
  check(message.size() <= UINT32_MAX, "a control message is larger than 4 GiB");
  const auto size = static_cast<std::uint32_t>(message.size());
  outgoing_.append(reinterpret_cast<const char*>(&size), size_bytes);
  outgoing_ += message;
  flush();
}

void Wire::flush() {
  while (unsent()) {
    const ssize_t sent = ::send(socket_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      sent_ += static_cast<std::size_t>(sent);
      if (2 * sent_ < outgoing_.size()) continue;  // so each byte moves once at most, on average
      outgoing_.erase(0, sent_);
      sent_ = 0;
    } else if (errno != EINTR) {
      if (errno != EAGAIN) close();
      return;
    }
  }
}

std::optional<std::string> Wire::receive() {
  if (std::optional<std::string> message = take()) return message;
  if (open()) fill();
  return take();
}

bool Wire::ended() const {
  pollfd entry{socket_.get(), POLLRDHUP, 0};
  return !open() || poll(&entry, 1, 0) == 1;
}

Socket Wire::take_socket() {
  check(incoming_.empty() && outgoing_.empty(),
        "a connection was taken in the middle of a message");
  return std::move(socket_);
}

void Wire::fill() {
  std::array<char, 65536> part;
  for (;;) {
    const ssize_t got = recv(socket_.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (got > 0) {
      incoming_.append(part.data(), static_cast<std::size_t>(got));
      if (incoming_.size() > size_bytes + limit_) return;       // take() first
      if (static_cast<std::size_t>(got) < part.size()) return;  // that was all
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      return close();
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

std::optional<std::string> Wire::take() {
  if (incoming_.size() < size_bytes) return std::nullopt;
  std::uint32_t size = 0;
  std::memcpy(&size, incoming_.data(), size_bytes);
  if (size > limit_) {
    incoming_.clear();
    close();
    return std::nullopt;
  }
  if (incoming_.size() < size_bytes + size) return std::nullopt;
  std::string message = incoming_.substr(size_bytes, size);
  incoming_.erase(0, size_bytes + size);
  return message;
}

void wait_for(std::span<Wire* const> wires) {
  std::vector<pollfd> entries;
  for (const Wire* wire : wires)
    if (wire->open())
      entries.push_back(
          {wire->handle(), static_cast<short>(POLLIN | (wire->unsent() ? POLLOUT : 0)), 0});
  poll(entries.data(), entries.size(), poll_ms);
}

namespace {

/// Empty for an address that other machines cannot use.
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

/// Calls `see` with each of this machine's addresses.
void for_each_address(const std::function<void(const ifaddrs& one)>& see) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next)
    if (one->ifa_addr != nullptr) see(*one);
}

}  // namespace

std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  for_each_address([&](const ifaddrs& one) {
    if ((one.ifa_flags & IFF_UP) == 0 || (one.ifa_flags & IFF_LOOPBACK) != 0) return;
    if (const std::string text = numeric(one.ifa_addr); !text.empty()) found.push_back(text);
  });
  return found;
}

std::vector<std::string> addresses_of(const std::string& host) {
  std::vector<std::string> found;
  const Addresses addresses = look_up(host, 0, 0);
  for (const addrinfo* one = addresses.get(); one; one = one->ai_next)
    if (const std::string text = numeric(one->ai_addr); !text.empty()) found.push_back(text);
  return found;
}

std::string interface_to(const std::string& address) {
  const Addresses to = look_up(address, 1, AI_NUMERICHOST);  // of a datagram that is not sent
  if (!to) return "";
  const Socket socket(::socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (!socket || ::connect(socket.get(), to->ai_addr, to->ai_addrlen) != 0 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    return "";
  std::string found;
  for_each_address([&](const ifaddrs& one) {
    if (numeric(one.ifa_addr) == numeric(reinterpret_cast<sockaddr*>(&own))) found = one.ifa_name;
  });
  return found;
}

}  // namespace lockstep::tcp
