#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "lockstep/base/countdown.hpp"
#include "lockstep/base/error.hpp"
#include "ports/tcp/handshake.hpp"
#include "ports/tcp/meet.hpp"

namespace lockstep::comm {
namespace {

constexpr double connect_s = 2, answer_s = 5;
constexpr std::chrono::milliseconds first_pause{20}, longest_pause{500};

/// One try to be let in: returns the wire, or writes the fault into `why`. Throws InputError when
/// rank 0 refuses this rank.
std::optional<Wire> introduce(const cluster::MeetingPlace& place, const cluster::RankInfo& self,
                              const cluster::MeetingCard& card, Socket socket, std::string& why) {
  Wire wire(std::move(socket), handshake_limit);
  const auto greeting = next_message(wire, answer_s);
  const auto host = greeting ? read_greeting(*greeting) : std::nullopt;
  if (!host) {
    why = "what listens there is not a rank of lockstep";
    return std::nullopt;
  }
  const Nonce mine = new_nonce();
  wire.send(make_hello(card.secret, *host, mine, {place.job, self.rank, self.world, place.node}));
  const auto answer = next_message(wire, answer_s);
  const auto refusal = answer ? read_answer(card.secret, *host, mine, *answer) : std::nullopt;
  if (!refusal) {
    why = "what listens there does not know this meeting's secret";
    return std::nullopt;
  }
  require(refusal->empty(), fmt::format("refused by rank 0: {}", *refusal));
  wire.set_limit(message_limit);
  return wire;
}

Socket connect_by_address(const std::string& address, std::uint16_t port) {
  Socket socket = begin_connection(address, port);
  return socket && connected(socket, connect_s).value_or(false) ? std::move(socket) : Socket();
}

}  // namespace

Peer join_rank_0(const cluster::MeetingPlace& place, const cluster::RankInfo& self,
                 const MeetingSpec& spec) {
  std::string why;
  // The card of an earlier start may still be there until rank 0 has replaced it. So when rank 0
  // does not answer, the file is read again. The pauses grow, since a thousand ranks may ask one
  // file system.
  std::chrono::milliseconds pause = first_pause;
  for (Countdown left(spec.deadline_s); !left.over(); std::this_thread::sleep_for(pause)) {
    check_not_cancelled(spec);
    pause = std::min(2 * pause, longest_pause);
    const auto card = cluster::read_card(place.file);
    if (!card) {
      why =
          "rank 0 has not written this file: is its directory the same on all nodes? "
          "(LOCKSTEP_RENDEZVOUS_DIR names another)";
      continue;
    }
    for (const std::string& host : card->hosts) {
      check_not_cancelled(spec);
      Socket socket = spec.by_address ? connect_by_address(host, card->port)
                                      : connect_to(host, card->port, connect_s);
      if (!socket) {
        why = fmt::format("cannot connect to {} port {}", host, card->port);
      } else if (auto wire = introduce(place, self, *card, std::move(socket), why)) {
        return {std::move(*wire), host, card->secret};
      } else {
        why = fmt::format("{} port {}: {}", host, card->port, why);
      }
    }
  }
  throw MissingRanks(fmt::format("start-up: rank 0 was not found within {} s by {}: {}",
                                 spec.deadline_s, place.file.string(), why));
}

}  // namespace lockstep::comm
