#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/comm/staging.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::comm {

/// Names a message between two ranks, so that it may come before the receiver's operation begins.
struct MessageName {
  std::uint32_t group = 0;      ///< the group and kind of operation
  std::uint32_t operation = 0;  ///< its number among these
  std::uint32_t part = 0;       ///< of the operation

  auto operator<=>(const MessageName&) const = default;
};

/// Messages about the ranks themselves. They have this group, and their kind in place of a part.
constexpr std::uint32_t notice_group = UINT32_MAX;
enum class Notice : std::uint32_t { here, question, answer, finding };

/// What a rank has found out about ranks that are missing.
struct MeshFinding {
  std::string text;      ///< empty: nothing was found
  bool outside = false;  ///< it is an OutsideFault
};

/// A message that came before it was expected, or that is only to be read.
class Arrival {
 public:
  Arrival() = default;
  Arrival(std::size_t bytes, Staging& staging);
  std::byte* data() {
    return block_ ? block_->bytes.data() : reinterpret_cast<std::byte*>(few_.data());
  }
  std::size_t bytes() const { return bytes_; }
  void give_back(Staging& staging);

 private:
  std::size_t bytes_ = 0;
  std::unique_ptr<Block> block_;  ///< null for few bytes
  std::string few_;
};

/// One rank's connection to another, for named messages of at most `piece_bytes`. It never blocks.
/// Messages may be queued before the connection exists. They are not copied: a message's memory
/// belongs to the link until it was written.
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
  /// `peer`: the other rank. `mine`: what this rank answers when that one asks.
  Link(int peer, Staging& staging, const std::string& mine)
      : peer_(peer), staging_(staging), mine_(mine) {}

  /// `unsent` counts this message until the system has taken it.
  void send(const MessageName& name, const void* data, std::size_t bytes, std::size_t& unsent);
  void notify(Notice kind, std::uint32_t number, std::string_view text = {});
  /// The message of this name goes to `data`; `missing` counts it until it has arrived. `phase`, of
  /// which it is a part, must live as long.
  void expect(const MessageName& name, void* data, std::size_t bytes, std::size_t& missing,
              const std::string& phase);
  /// The message of this name, `bytes` long, if it has arrived and was not expected.
  std::optional<Arrival> take(const MessageName& name, std::size_t bytes, const std::string& phase);
  /// Forgets the messages that this counter counts, whose memory ends. One that is on its way ends
  /// the connection.
  void forget(const std::size_t* counter);

  /// `speaks_first`: this side sends before the other one does, so that neither of them takes a
  /// message for a part of the handshake.
  void connect(Socket socket, bool speaks_first);
  bool open() const { return static_cast<bool>(socket_); }
  /// The other side has sent something. Until then a new connection may replace this one.
  bool confirmed() const { return confirmed_; }
  bool gone() const { return gone_; }  ///< it was confirmed, and has ended
  bool unsent() const { return !outgoing_.empty(); }
  bool write();  ///< as much as the connection takes; true when something was written
  /// Reads all that has arrived; true when there was something. `ends`: after it comes the
  /// connection's end, of which the system tells only once.
  bool read(bool ends);

  std::uint32_t answered() const { return answered_; }   ///< the newest question that was answered
  const std::string& answer() const { return answer_; }  ///< to that one
  const MeshFinding& finding() const { return finding_; }

 private:
  struct Head {
    MessageName name;
    std::uint32_t bytes = 0;
  };
  struct Outgoing {
    Head head;
    const std::byte* data = nullptr;
    std::size_t* unsent = nullptr;  ///< null for a notice
    std::string text;               ///< of a notice
  };
  struct Expected {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t* missing = nullptr;
    const std::string* phase = nullptr;
  };

  void put(Outgoing message);
  void written(std::size_t bytes);
  void begin_message();
  void end_message();
  void hear();
  void end();
  void check_size(std::size_t got, std::size_t wanted, const std::string& phase) const;

  const int peer_;
  Staging& staging_;
  const std::string& mine_;
  Socket socket_;
  bool confirmed_ = false, may_write_ = false, gone_ = false;
  std::deque<Outgoing> outgoing_;
  std::size_t written_ = 0;  ///< of the first one, with its head
  std::map<MessageName, Expected> expected_;
  std::map<MessageName, Arrival> arrived_;
  Head head_;  ///< of the next message
  std::size_t head_got_ = 0;
  Head arriving_;         ///< the message that is arriving
  std::size_t left_ = 0;  ///< of it
  std::byte* to_ = nullptr;
  std::size_t* missing_ = nullptr;  ///< of an expected one; null for one that goes to `arrival_`
  Arrival arrival_;
  std::uint32_t answered_ = 0;
  std::string answer_;
  MeshFinding finding_;
};

}  // namespace lockstep::comm
