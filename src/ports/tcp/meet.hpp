#pragma once

#include <string>
#include <vector>

#include "lockstep/cluster/rendezvous.hpp"
#include "lockstep/comm/tcp_control.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::comm {

/// A rank that has been let in.
struct Peer {
  Wire wire;
  std::string node;
};

/// Messages between ranks that know each other; larger ones are a mistake.
constexpr std::size_t message_limit = std::size_t{1} << 28;

/// The first byte of rank 0's answer to a meeting's parts: the result follows, or why there is
/// none.
constexpr char agreed = 'y', refused = 'n';

/// Throws when the meeting is off.
void check_not_cancelled(const MeetingSpec& spec);

/// Rank 0: everybody else, by rank ([0] stays empty).
std::vector<Peer> accept_all_ranks(const cluster::MeetingPlace& place,
                                   const cluster::RankInfo& self, const MeetingSpec& spec);

/// The others: rank 0.
Peer join_rank_0(const cluster::MeetingPlace& place, const cluster::RankInfo& self,
                 const MeetingSpec& spec);

}  // namespace lockstep::comm
