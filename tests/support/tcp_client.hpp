#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::test {

/// A connection to a port of this machine.
inline tcp::Socket connect_to(std::uint16_t port) {
  tcp::Socket socket = tcp::begin_connection("127.0.0.1", port);
  for (const double end = now_s() + 5; now_s() < end;)
    if (const auto stands = tcp::connected(socket))
      return *stands ? std::move(socket) : tcp::Socket();
  return {};
}

/// The next message that arrives within `within_s`, if one does.
inline std::optional<std::string> next_message(tcp::Wire& wire, double within_s) {
  tcp::Wire* const only[] = {&wire};
  for (const double end = now_s() + within_s; wire.open() && now_s() < end; tcp::wait_for(only)) {
    wire.flush();
    if (auto message = wire.receive()) return message;
  }
  return std::nullopt;
}

}  // namespace lockstep::test
