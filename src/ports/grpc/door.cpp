#include "ports/grpc/call.hpp"

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
#include "lockstep/base/http.hpp"

namespace lockstep::grpc {
namespace {

constexpr int look_ms = 100;  // for the end, and for connections when there was no descriptor
constexpr unsigned unused_ms = 1000;  // the silence of a connection that does nothing

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
    : most_(most_connections),
      silence_s_(silence_s),
      listening_(listen_at(host, port)),
      events_(::epoll_create1(EPOLL_CLOEXEC)) {
  require(bool{events_}, "epoll: " + std::string(std::strerror(errno)));
}

std::uint16_t Door::port() const { return port_of(listening_); }

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
    // Both families have their port there.
    taken_.emplace(second, ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port));
    Acceptor::NewConnectionParameters given;
    given.listener_fd = listening_.get();
    given.fd = client;
    acceptor_->HandleNewConnection(&given);
  }
}

}  // namespace lockstep::grpc
