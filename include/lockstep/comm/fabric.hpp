#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/control.hpp"
#include "lockstep/comm/transport.hpp"

namespace lockstep::comm {

/// What a letter is: a rank's part of a meeting, or what rank 0 makes of all parts; a question for
/// whom a rank waits, an answer to that, or who is missing. Letters of one kind from one rank keep
/// their order.
enum class LetterKind : std::uint32_t { part, result, question, answer, finding };
constexpr std::size_t letter_kinds = 5;
constexpr std::size_t letter_bytes = std::size_t{1} << 30;  ///< the most that one has
/// The first byte of rank 0's result: it follows, or the reason why there is none, which rank 0 has
/// reported where ranks are missing.
constexpr char result_mark = 'y', refusal_mark = 'n', missing_mark = 'm';

struct Letter {
  int from = 0;
  std::string text;
};

/// How a rank reaches the others of its world; a port makes one. It carries letters, which are
/// texts, and makes transports, which carry the parts of tensors. Only wait() waits. Calls that
/// fail throw Error.
/// **Thread safety:** none; one thread at a time uses it and its transports.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual void send(const std::vector<int>& ranks, LetterKind kind, std::string text) = 0;
  /// The next letter of this kind that has arrived as a whole.
  virtual std::optional<Letter> take(LetterKind kind) = 0;
  virtual std::vector<int> unsent() = 0;  ///< letters to these are still on their way; ascending
  /// Until something may have come or may leave, a twentieth of a second at most.
  virtual void wait() = 0;
  std::function<void()> meanwhile;  ///< optional: called in each wait of a fabric that polls
  /// Collective. `deadline` is polled until all have come.
  virtual std::unique_ptr<Transport> make_transport(WaitDeadline& deadline) = 0;

  // A fabric of connections knows more.
  /// Collective: all ranks tell each other how to connect. Before, only rank 0 and another one do.
  virtual void introduce(Control&) {}
  virtual bool connecting() const { return false; }      ///< then call take() often
  virtual bool reaches(int) const { return true; }       ///< a letter to this rank leaves at once
  virtual bool gone(int) const { return false; }         ///< its connection has ended
  virtual std::string host_of(int) const { return {}; }  ///< of a rank that has connected
};

}  // namespace lockstep::comm
