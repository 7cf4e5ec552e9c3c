#pragma once

#include <unistd.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/owned.hpp"

namespace lockstep::tcp {

using Socket = Descriptor;

struct Listener {
  Socket socket;
  std::uint16_t port = 0;
};

/// Listens on the first of `ports` that is free (0: any), on all interfaces. Throws Error when no
/// port is free.
Listener listen_on(std::span<const std::uint16_t> ports);

/// A new incoming connection, or an empty Socket.
Socket accept_on(const Listener& listener);

/// Lets the system give up a connection only after so long without an answer; without it, it may
/// do so after 15 s, since it sends again each second.
void outlast_silence(const Socket& socket, unsigned seconds);

/// Starts a connection to a numeric address, or returns an empty Socket; see connected().
Socket begin_connection(const std::string& address, std::uint16_t port);
/// True when it is connected, false when it failed; nothing when neither is known yet.
std::optional<bool> connected(const Socket& socket);

/// The numeric addresses of a host, by its name.
std::vector<std::string> addresses_of(const std::string& host);
/// The interface through which this machine reaches a numeric address; empty where that is unknown.
std::string interface_to(const std::string& address);

/// A connection for whole messages, each sent after its size. Never blocks; wait_for() does. A
/// message that is larger than `limit` ends the connection: a stranger may claim any size.
class Wire {
 public:
  Wire() = default;
  Wire(Socket socket, std::size_t limit) : socket_(std::move(socket)), limit_(limit) {}

  void send(std::string_view message);   ///< appended; flush() moves it
  void flush();                          ///< writes what the connection accepts now
  std::optional<std::string> receive();  ///< the next message, if it has arrived whole
  std::optional<std::string> take();     ///< the next of those that receive() has read already
  bool open() const { return static_cast<bool>(socket_); }
  bool ended() const;  ///< the other side has closed it; its last messages may still be unread
  bool unsent() const { return open() && !outgoing_.empty(); }
  void set_limit(std::size_t limit) { limit_ = limit; }
  int handle() const { return socket_.get(); }
  void close() { socket_.reset(); }
  /// The connection without the messages' frame. Everything that was sent and received must have
  /// been flushed and taken.
  Socket take_socket();

 private:
  void fill();

  Socket socket_;
  std::size_t limit_ = 0;
  std::string incoming_, outgoing_;
  std::size_t sent_ = 0;  ///< of outgoing_'s first bytes
};

/// Sleeps until a wire has something to read or room for unsent data, but no longer than a
/// twentieth of a second.
void wait_for(std::span<Wire* const> wires);

/// This machine's numeric addresses at which other machines may find it.
std::vector<std::string> own_addresses();

using Key = std::array<std::uint8_t, 16>;

/// SipHash-2-4 (Aumasson and Bernstein, 2012): a short message's tag, which cannot be made without
/// the key.
inline std::uint64_t siphash(const Key& key, std::string_view message) {
  static_assert(std::endian::native == std::endian::little);
  const auto word = [](const void* bytes, std::size_t count = 8) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes, count);
    return value;
  };
  const std::uint64_t low = word(key.data()), high = word(key.data() + 8);
  std::uint64_t v0 = low ^ 0x736f6d6570736575, v1 = high ^ 0x646f72616e646f6d;
  std::uint64_t v2 = low ^ 0x6c7967656e657261, v3 = high ^ 0x7465646279746573;
  const auto rounds = [&](int count) {
    for (; count > 0; --count) {
      v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
      v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
    }
  };
  const auto absorb = [&](std::uint64_t value) {
    v3 ^= value;
    rounds(2);
    v0 ^= value;
  };
  std::size_t done = 0;
  for (; done + 8 <= message.size(); done += 8) absorb(word(message.data() + done));
  const std::uint64_t rest = word(message.data() + done, message.size() - done);
  absorb(rest | static_cast<std::uint64_t>(message.size()) << 56);
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace lockstep::tcp
