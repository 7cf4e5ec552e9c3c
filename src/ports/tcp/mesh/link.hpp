#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/comm/fabric.hpp"
#include "lockstep/comm/staging.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::tcp {

/// The kinds of messages on a connection: letters first, then what only shows that its sender is
/// here, then the kinds of one transport after the other.
constexpr std::uint32_t here = comm::letter_kinds, first_transport = here + 1;

/// A message that came before it was expected.
class Arrival {
 public:
  Arrival() = default;
  Arrival(std::size_t bytes, comm::Staging& staging);
  std::byte* data() {
    return block_ ? block_->bytes.data() : reinterpret_cast<std::byte*>(few_.data());
  }
  std::size_t bytes() const { return bytes_; }
  void give_back(comm::Staging& staging);

 private:
  std::size_t bytes_ = 0;
  std::unique_ptr<comm::Block> block_;  ///< null for few bytes
  std::string few_;
};

class LinkMessage;

/// One rank's connection to another, for letters and for messages of at most `piece_bytes`. It
/// never blocks. Both may be queued before the connection exists. Messages are not copied: a
/// message's memory belongs to the link until it was written.
///
///                connect(socket, true): this side speaks first
///        ┌──────────────────────────────────────────────────────┐
///        │                                                      ▼
///   ┌────────┐ connect(socket, false) ┌────────┐ read()  ┌───────────┐  end   ┌──────┐
///   │ absent │ ─────────────────────▶ │ silent │ ──────▶ │ confirmed │ ─────▶ │ gone │
///   └────────┘                        └────────┘         └───────────┘        └──────┘
///        ▲              end             │    ▲
///        └──────────────────────────────┤    │ another connection replaces it
///                                       └────┘
///   open()   no                         yes               yes                  no, for ever
///   messages wait                       wait              are written          wait
///
/// `end`: the system says so, or a message's memory ends while the message is on its way.
class Link {
 public:
  using Hear = std::function<void(comm::LetterKind kind, std::string text)>;
  /// `hear` gets the letters that read() has found.
  Link(comm::Staging& staging, Hear hear) : staging_(staging), hear_(std::move(hear)) {}

  /// It is done when the system has taken it.
  std::unique_ptr<comm::Message> send(comm::MessageTag tag, const void* data, std::size_t bytes);
  /// `data` is null for one that is taken.
  std::unique_ptr<comm::Message> expect(comm::MessageTag tag, void* data, std::size_t bytes);
  void post(comm::LetterKind kind, std::shared_ptr<const std::string> text);

  /// `speaks_first`: this side sends before the other one does, so that neither of them takes a
  /// message for a part of the handshake.
  void connect(Socket socket, bool speaks_first);
  bool open() const { return static_cast<bool>(socket_); }
  /// The other side has sent something. Until then a new connection may replace this one.
  bool confirmed() const { return confirmed_; }
  bool gone() const { return gone_; }                     ///< it was confirmed, and has ended
  bool unsent() const { return letters_ > 0 && !gone_; }  ///< letters are on their way
  bool write();  ///< as much as the connection takes; true when something was written
  /// Reads all that has arrived; true when there was something. `ends`: after it comes the
  /// connection's end, of which the system tells only once.
  bool read(bool ends);

 private:
  friend class LinkMessage;
  struct Head {
    comm::MessageTag tag;
    std::uint32_t bytes = 0;
  };
  struct Outgoing {
    Head head;
    const std::byte* data = nullptr;
    LinkMessage* message = nullptr;           ///< null for a letter
    std::shared_ptr<const std::string> text;  ///< of a letter
  };

  /// The memory of this message ends. If it is on its way, so does the connection.
  void forget(const LinkMessage* message);
  void put(Outgoing message);
  void written(std::size_t bytes);
  void begin_message();
  void end_message();
  void end();

  comm::Staging& staging_;
  const Hear hear_;
  Socket socket_;
  bool confirmed_ = false, may_write_ = false, gone_ = false;
  std::deque<Outgoing> outgoing_;
  std::size_t letters_ = 0;                                 ///< of outgoing_
  std::size_t written_ = 0;                                 ///< of the first one, with its head
  std::multimap<comm::MessageTag, LinkMessage*> expected_;  ///< those of one tag keep their order
  std::multimap<comm::MessageTag, Arrival> arrived_;        ///< before they were expected
  Head head_;                                               ///< of the next message
  std::size_t head_got_ = 0;
  Head arriving_;         ///< the message that is arriving
  std::size_t left_ = 0;  ///< of it
  std::byte* to_ = nullptr;
  LinkMessage* message_ = nullptr;  ///< an expected one; null for one that goes to `arrival_`
  Arrival arrival_;
  std::string letter_;
};

}  // namespace lockstep::tcp
