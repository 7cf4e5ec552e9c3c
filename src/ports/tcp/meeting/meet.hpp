#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/identity/rendezvous.hpp"
#include "lockstep/comm/worlds/tcp_control.hpp"
#include "ports/tcp/siphash.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::tcp {

/// A rank that has been let in.
struct Peer {
  Wire wire;
  std::string node;
  Key secret{};  ///< of the meeting; only of rank 0
};

/// The largest message between ranks that have been let in; a larger one is an error.
constexpr std::size_t message_limit = std::size_t{1} << 28;

/// The first byte of rank 0's answer to a meeting's parts. The result follows, or the reason why
/// there is no result.
constexpr char agreed = 'y', refused = 'n';

/// How rank 0's refusal begins when it ends.
constexpr std::string_view ended = "rank 0 has ended: ";

/// What a rank says when it has heard that it was let in. Until then it may have given up.
constexpr std::string_view confirmation;

/// Throws Error when the meeting was cancelled.
void check_not_cancelled(const comm::MeetingSpec& spec);

/// On rank 0: waits for all other ranks; returns them by rank ([0] stays empty).
std::vector<Peer> accept_all_ranks(const cluster::MeetingPlace& place,
                                   const cluster::RankInfo& self, const comm::MeetingSpec& spec);

/// On the other ranks: connects to rank 0.
Peer join_rank_0(const cluster::MeetingPlace& place, const cluster::RankInfo& self,
                 const comm::MeetingSpec& spec);

}  // namespace lockstep::tcp
