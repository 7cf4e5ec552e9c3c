#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ports/tcp/siphash.hpp"

namespace lockstep::tcp {

/// How two ranks authenticate each other, in three messages:
///   rank 0:  title, its nonce
///   peer:    its nonce, tag of (both nonces, what follows), job, rank, world, node
///   rank 0:  tag of (both nonces, what follows), "y" or "n" and the reason
/// A tag is SipHash with the meeting's secret as key. So neither a stranger nor a recorded
/// conversation passes, and a peer that connected to a stranger notices. Messages are short: a peer
/// that has not passed cannot make rank 0 hold more than `handshake_limit` bytes.
constexpr std::size_t handshake_limit = 1024;

/// Strangers may say nothing. So there are few at a time, for a few seconds; when others wait for
/// their place, the oldest that have said nothing have only a moment. A thousand ranks take four
/// turns of one that computes.
constexpr std::size_t most_candidates = 256;
constexpr double silent_s = 10, moment_s = 0.25;

using Nonce = std::array<std::uint8_t, 16>;
Nonce new_nonce();

/// What a peer says about itself.
struct Hello {
  std::string job;
  int rank = 0, world = 0;
  std::string node;
};

std::string make_greeting(const Nonce& host);
/// Empty when the sender is not a rank 0 of lockstep.
std::optional<Nonce> read_greeting(std::string_view message);

std::string make_hello(const Key& secret, const Nonce& host, const Nonce& peer, const Hello& hello);
struct HeardHello {
  Nonce peer;
  Hello hello;
};
/// Empty when the peer does not know the secret.
std::optional<HeardHello> read_hello(const Key& secret, const Nonce& host,
                                     std::string_view message);

/// `refusal` is empty for a peer that is let in.
std::string make_answer(const Key& secret, const Nonce& host, const Nonce& peer,
                        std::string_view refusal);
/// The refusal, empty when let in; nothing when the sender does not know the secret.
std::optional<std::string> read_answer(const Key& secret, const Nonce& host, const Nonce& peer,
                                       std::string_view message);

}  // namespace lockstep::tcp
