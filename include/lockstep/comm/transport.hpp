#pragma once

// What collectives on the host need of a network: make_direct_communicator() makes all verbs of a
// Communicator from it.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/waits/absence.hpp"

namespace lockstep::comm {

/// Messages from one rank to another that have the same tag keep their order; others may not.
struct MessageTag {
  std::uint32_t kind = 0;    ///< less than message_kinds
  std::uint32_t number = 0;  ///< counts operations. A transport may keep the lowest 12 bits only

  auto operator<=>(const MessageTag&) const = default;
};
constexpr std::uint32_t message_kinds = 6;

/// A message that is under way. Its memory must stay until it is done. It ends before that only
/// when the world is about to end.
class Message {
 public:
  virtual ~Message() = default;
  /// Never waits. Of a message that was sent: its memory may change. Of one that was asked for: it
  /// has come. Not called again once it was true.
  virtual bool done() = 0;

  std::size_t bytes = 0;  ///< that came, once it is done: it may be shorter than was expected
  const std::byte* data = nullptr;  ///< of one that was taken, until this object ends
};

/// Moves messages of at most `piece_bytes` between the ranks of a world. No call waits, and the
/// rank itself is no peer. Those that fail throw Error.
/// **Thread safety:** none; one thread uses a transport.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::unique_ptr<Message> send(int to, MessageTag tag, const void* data,
                                        std::size_t bytes) = 0;
  /// The next message of this tag goes to `data`.
  virtual std::unique_ptr<Message> expect(int from, MessageTag tag, void* data,
                                          std::size_t bytes) = 0;
  /// The next message of this tag goes to memory of the transport.
  virtual std::unique_ptr<Message> take(int from, MessageTag tag, std::size_t bytes) = 0;
  /// Moves what can be moved; true when something has. Messages may also move in done().
  virtual bool progress() { return false; }
  /// Whether messages are copied on their way. If so, they may come, and their senders be done,
  /// before they are expected; and memory that a message still leaves from may be expected into,
  /// where what comes answers this message. If not, they stay in their sender's memory until then.
  virtual bool copies() const = 0;
  /// One more between the same ranks: messages of the two never meet. Collective; `deadline` is
  /// polled until all have come.
  virtual std::unique_ptr<Transport> make_other(WaitDeadline& deadline) = 0;
};

/// The deadline of a wait that begins now. `phase` is what errors call it.
using MakeDeadline =
    std::function<std::unique_ptr<WaitDeadline>(std::string phase, Awaited awaited)>;

/// Collectives over `transport`, in groups of any kind. Host streams advance them; there is no
/// thread. Sums have the same bits over each transport. In a world of one rank `transport` may be
/// null.
std::unique_ptr<Communicator> make_direct_communicator(std::unique_ptr<Transport> transport,
                                                       MakeDeadline deadline, int rank, int world,
                                                       const ActivityTracker& activity = {});

}  // namespace lockstep::comm
