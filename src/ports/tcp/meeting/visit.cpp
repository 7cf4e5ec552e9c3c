#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "ports/tcp/meeting/handshake.hpp"
#include "ports/tcp/meeting/meet.hpp"

namespace lockstep::tcp {
namespace {

constexpr double connect_s = 2, answer_s = 5;
constexpr double patient_s = 3;  // with a rank 0 that may not be able to leave its card
constexpr std::chrono::milliseconds first_pause{20}, longest_pause{500};

/// One try to be let in: returns the wire, or writes the fault into `why`. `greeted`: a rank
/// listens there. The start's `deadline` ends each wait. Throws InputError when rank 0 refuses this
/// rank.
std::optional<Wire> introduce(const cluster::MeetingPlace& place, const cluster::RankInfo& self,
                              const cluster::MeetingCard& card, Socket socket, Countdown& deadline,
                              std::string& why, bool& greeted) {
  Wire wire(std::move(socket), handshake_limit);
  const auto greeting = next_message(wire, answer_s, &deadline);
  const auto host = greeting ? read_greeting(*greeting) : std::nullopt;
  greeted = host.has_value();
  if (!host) {
    why = "what listens there is not a rank of lockstep";
    return std::nullopt;
  }
  const Nonce mine = new_nonce();
  wire.send(make_hello(card.secret, *host, mine, {place.job, self.rank, self.world, place.node}));
  const auto answer = next_message(wire, answer_s, &deadline);
  const auto refusal = answer ? read_answer(card.secret, *host, mine, *answer) : std::nullopt;
  if (!refusal) {
    why = !answer && wire.open() ? "the rank that listens there does not answer"
                                 : "what listens there does not know this meeting's secret";
    return std::nullopt;
  }
  if (refusal->starts_with(ended)) throw comm::MissingRanks(*refusal, true);
  require(refusal->empty(), fmt::format("refused by rank 0: {}", *refusal));
  wire.set_limit(message_limit);
  wire.send(confirmation);
  return wire;
}

Socket connect_by_address(const std::string& address, std::uint16_t port, Countdown& deadline) {
  Socket socket = begin_connection(address, port);
  const bool stands = socket && connected(socket, connect_s, &deadline).value_or(false);
  return stands ? std::move(socket) : Socket();
}

/// Tries one host of the card. A rank that listens there and was too busy to answer is asked once
/// more at once: it may have let this one in, and does not wait long for it to come again.
std::optional<Wire> visit(const cluster::MeetingPlace& place, const cluster::RankInfo& self,
                          const cluster::MeetingCard& card, const std::string& host,
                          bool by_address, Countdown& deadline, std::string& why) {
  bool greeted = true;
  for (int tries = 0; greeted && tries < 2; ++tries) {
    if (tries > 0 && deadline.over()) break;
    Socket socket = by_address ? connect_by_address(host, card.port, deadline)
                               : connect_to(host, card.port, connect_s, &deadline);
    if (!socket) {
      why = fmt::format("cannot connect to {} port {}", host, card.port);
      return std::nullopt;
    }
    if (auto wire = introduce(place, self, card, std::move(socket), deadline, why, greeted))
      return wire;
  }
  why = fmt::format("{} port {}: {}", host, card.port, why);
  return std::nullopt;
}

}  // namespace

Peer join_rank_0(const cluster::MeetingPlace& place, const cluster::RankInfo& self,
                 const comm::MeetingSpec& spec) {
  std::string why;
  // The card of an earlier start may still be there until rank 0 has replaced it. So when rank 0
  // does not answer, the file is read again. The pauses grow, since a thousand ranks may ask one
  // file system.
  std::chrono::milliseconds pause = first_pause;
  Countdown patient(patient_s);
  for (Countdown left(spec.deadline_s); !left.over(); std::this_thread::sleep_for(pause)) {
    check_not_cancelled(spec);
    pause = std::min(2 * pause, longest_pause);
    const auto card = cluster::read_card(place.file);
    if (!card) {
      why =
          "rank 0 has not written this file: is its directory the same on all nodes? "
          "(LOCKSTEP_RENDEZVOUS_DIR names another)";
      if (patient.over()) cluster::check_folder(place.file);
      continue;
    }
    for (const std::string& host : card->hosts) {
      check_not_cancelled(spec);
      if (auto wire = visit(place, self, *card, host, spec.by_address, left, why))
        return {std::move(*wire), host, card->secret};
      if (left.over()) break;
    }
  }
  throw comm::MissingRanks(fmt::format("start-up: rank 0 was not found within {:g} s by {}: {}",
                                       spec.deadline_s, place.file.string(), why));
}

}  // namespace lockstep::tcp
