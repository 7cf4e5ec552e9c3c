#include "lockstep/base/http.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/text/numbers.hpp"

namespace lockstep {
namespace {

struct Address {
  sockaddr_storage bytes = {};
  socklen_t size = sizeof bytes;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
};

Address address_of(const std::string& host, std::uint16_t port) {
  Address address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.bytes);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.bytes);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    address.size = sizeof v4;
    return address;
  }
  require(::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1,
          fmt::format("'{}' is not an address in numbers", host));
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  address.size = sizeof v6;
  return address;
}

}  // namespace

Descriptor listen_at(const std::string& host, std::uint16_t port) {
  Address address = address_of(host, port);
  Descriptor made(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool v6 = address.bytes.ss_family == AF_INET6;
  if (v6) ::setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  const bool listens = made && ::bind(made.get(), address.get(), address.size) == 0 &&
                       ::listen(made.get(), SOMAXCONN) == 0;
  require(listens, fmt::format("{}:{}: nothing can listen there: {}", v6 ? "[" + host + "]" : host,
                               port, std::strerror(errno)));
  return made;
}

std::uint16_t port_of(const Descriptor& socket) {
  Address address;
  check(::getsockname(socket.get(), address.get(), &address.size) == 0, "getsockname");
  return ntohs(
      reinterpret_cast<const sockaddr_in&>(address.bytes).sin_port);  // or sin6_port's place
}

void let_others_finish() {
  const sched_param none = {};
  ::sched_setscheduler(0, SCHED_BATCH, &none);
}

HttpSpec parse_listen(const std::string& text, const std::string& key) {
  HttpSpec spec;
  const std::size_t colon = text.rfind(':');
  if (colon != std::string::npos) spec.host = text.substr(0, colon);
  if (spec.host.size() > 1 && spec.host.front() == '[' && spec.host.back() == ']')
    spec.host = spec.host.substr(1, spec.host.size() - 2);
  else
    require(spec.host.find(':') == std::string::npos,
            fmt::format("{}: '{}': an IPv6 address is written in [ ]", key, text));
  require(!spec.host.empty(), fmt::format("{}: '{}' has no address before its port", key, text));
  spec.port = static_cast<std::uint16_t>(
      parse_count(text.substr(colon == std::string::npos ? 0 : colon + 1), key, 1, 65535));
  return spec;
}

}  // namespace lockstep
