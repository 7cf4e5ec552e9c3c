#include "ports/tcp/own_addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <memory>

namespace lockstep::tcp {
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

}  // namespace

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

}  // namespace lockstep::tcp
