#include "ports/grpc/call.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"

namespace lockstep::grpc {
namespace {

constexpr int look_ms = 100;  // for the end, and for connections when there was no descriptor
constexpr unsigned unused_ms = 1000;  // the silence of a connection that does nothing

sockaddr_storage address_of(const std::string& host, std::uint16_t port, socklen_t& size) {
  sockaddr_storage address = {};
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    size = sizeof v4;
    return address;
  }
  require(::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1,
          fmt::format("'{}' is not an address in numbers", host));
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  size = sizeof v6;
  return address;
}

std::uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

/// For how long nothing has come or gone; 0 where the system does not say.
unsigned silence_ms(int socket) {
  tcp_info info = {};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return std::min(info.tcpi_last_data_recv, info.tcpi_last_data_sent);
}

void set(int socket, int level, int name) {
  const int on = 1;
  ::setsockopt(socket, level, name, &on, sizeof on);
}

}  // namespace

Door::Door(const std::string& host, std::uint16_t port, std::size_t most_connections,
           unsigned silence_s)
    : most_(most_connections), silence_s_(silence_s), events_(::epoll_create1(EPOLL_CLOEXEC)) {
  socklen_t size = 0;
  const sockaddr_storage address = address_of(host, port, size);
  listening_ =
      Descriptor(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  set(listening_.get(), SOL_SOCKET, SO_REUSEADDR);
  if (address.ss_family == AF_INET6) set(listening_.get(), IPPROTO_IPV6, IPV6_V6ONLY);
  const bool listens =
      events_ && ::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
      ::listen(listening_.get(), SOMAXCONN) == 0;
  require(listens, fmt::format("{}:{}: nothing can listen there: {}",
                               host.find(':') == host.npos ? host : "[" + host + "]", port,
                               std::strerror(errno)));
}

std::uint16_t Door::port() const {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  ::getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return port_of(address);
}

void Door::open(std::unique_ptr<Acceptor> acceptor) {
  acceptor_ = std::move(acceptor);
  thread_ = std::thread([this] { work(); });
}

void Door::close() {
  closed_ = true;
  if (thread_.joinable()) thread_.join();
  for (const auto& [taken, client] : taken_) ::close(taken);
  taken_.clear();
  listening_ = {};
}

/// Those that wait are the system's until then.
void Door::listen(bool wanted) {
  if (wanted == listens_) return;
  epoll_event event = {.events = EPOLLIN, .data = {.fd = listening_.get()}};
  ::epoll_ctl(events_.get(), wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listening_.get(), &event);
  listens_ = wanted;
}

void Door::work() {
  std::array<epoll_event, 64> events;
  while (!closed_) {
    listen(taken_.size() < most_);
    if (!listens_) make_place();
    const int count = ::epoll_wait(events_.get(), events.data(), events.size(), look_ms);
    for (int i = 0; i < count; ++i) {
      const int ready = events[static_cast<std::size_t>(i)].data.fd;
      if (ready == listening_.get()) {
        take_all();
      } else if ((events[static_cast<std::size_t>(i)].events & EPOLLHUP) != 0) {
        // Closed alone it would stay in epoll while the library's own is open, and tell of a number
        // that is another file's by then.
        ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, ready, nullptr);
        taken_.erase(ready);
        ::close(ready);
      }
    }
  }
}

void Door::count_call(std::uint16_t client, int more) {
  const std::scoped_lock lock(mutex_);
  if ((calls_[client] += more) == 0) calls_.erase(client);
}

unsigned Door::patience_ms(std::uint16_t client) const {
  const std::scoped_lock lock(mutex_);
  return calls_.contains(client) ? silence_s_ * 1000 : unused_ms;
}

/// A few at a time: those that wait are not counted.
void Door::make_place() {
  if (!is_readable(listening_.get())) return;
  std::vector<std::pair<unsigned, int>> silent;
  for (const auto& [taken, client] : taken_)
    if (const unsigned ms = silence_ms(taken); ms > patience_ms(client))
      silent.emplace_back(ms, taken);
  std::ranges::sort(silent, std::greater<>{});
  silent.resize(std::min(silent.size(), most_ / 8 + 1));
  for (const auto& [ms, taken] : silent) ::shutdown(taken, SHUT_RDWR);
}

void Door::take_all() {
  while (taken_.size() < most_) {
    sockaddr_storage address = {};
    socklen_t size = sizeof address;
    const int client = ::accept4(listening_.get(), reinterpret_cast<sockaddr*>(&address), &size,
                                 SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client < 0) {
      if (errno == EMFILE || errno == ENFILE) listen(false);  // until the next look
      return;
    }
    set(client, IPPROTO_TCP, TCP_NODELAY);
    const int second = ::fcntl(client, F_DUPFD_CLOEXEC, 0);
    epoll_event event = {.events = 0, .data = {.fd = second}};  // it tells a HUP anyway
    if (second < 0 || ::epoll_ctl(events_.get(), EPOLL_CTL_ADD, second, &event) != 0) {
      if (second >= 0) ::close(second);
      ::close(client);
      continue;
    }
    taken_.emplace(second, port_of(address));
    Acceptor::NewConnectionParameters given;
    given.listener_fd = listening_.get();
    given.fd = client;
    acceptor_->HandleNewConnection(&given);
  }
}

}  // namespace lockstep::grpc
