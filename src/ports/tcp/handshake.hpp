#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ports/tcp/siphash.hpp"

namespace lockstep::comm {

/// How two ranks make sure of each other, in three messages:
///   rank 0:  title, its nonce
///   peer:    its nonce, tag of (both nonces, what follows), job, rank, world, node
///   rank 0:  tag of (both nonces, what follows), "y" or "n" and the reason
/// A tag is SipHash under the meeting's secret, so that neither a stranger nor a recorded
/// conversation passes, and a peer that dialled a stranger notices. Messages are short: nobody who
/// has not passed can make rank 0 hold more than `handshake_limit` bytes.
constexpr std::size_t handshake_limit = 1024;

/// Strangers may come in any number and say nothing: the oldest goes when there are more.
constexpr std::size_t most_candidates = 1024;

using Nonce = std::array<std::uint8_t, 16>;
Nonce new_nonce();

/// Who a peer says it is.
struct Hello {
  std::string job;
  int rank = 0, world = 0;
  std::string node;
};

std::string make_greeting(const Nonce& host);
/// Empty when this is no rank 0 of lockstep's.
std::optional<Nonce> read_greeting(std::string_view message);

std::string make_hello(const Key& secret, const Nonce& host, const Nonce& peer, const Hello& hello);
struct HeardHello {
  Nonce peer;
  Hello hello;
};
/// Empty when the peer does not know the secret.
std::optional<HeardHello> read_hello(const Key& secret, const Nonce& host,
                                     std::string_view message);

/// `refusal` is empty for a peer that is welcome.
std::string make_answer(const Key& secret, const Nonce& host, const Nonce& peer,
                        std::string_view refusal);
/// The refusal, empty when welcome; nothing when who answers does not know the secret.
std::optional<std::string> read_answer(const Key& secret, const Nonce& host, const Nonce& peer,
                                       std::string_view message);

}  // namespace lockstep::comm
