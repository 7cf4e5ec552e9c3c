#pragma once

#include <limits>
#include <memory>
#include <stop_token>

#include "lockstep/base/error.hpp"
#include "lockstep/cluster/rendezvous.hpp"
#include "lockstep/comm/control.hpp"

namespace lockstep::comm {

/// Ranks that did not come, or have gone: what() says which.
class MissingRanks : public Error {
 public:
  explicit MissingRanks(const std::string& what, bool told_by_rank_0 = false)
      : Error(what), told(told_by_rank_0) {}
  const bool told;  ///< rank 0 has said it
};

/// How long ranks wait for each other.
struct MeetingSpec {
  double deadline_s = 120;
  /// For a rank that has not come though others of its node have, and since whom nobody came.
  double mates_s = std::numeric_limits<double>::infinity();
  std::stop_token stop = {};  ///< the meeting is off: Error
  /// Rank 0 is looked for by its addresses alone: looking up a name reads the environment, which
  /// another thread may be changing, as MPI's start does.
  bool by_address = false;
};

/// Control over TCP, for ranks that MPI does not connect: enough to agree and to exchange NCCL's
/// id. All ranks call it; rank 0 listens and leaves word at the place, the others come. Peers of
/// another job, of an earlier start, without the secret or with a rank that is taken are refused
/// and do not disturb the rest. Throws MissingRanks when not all came in time or one has gone
/// again: on rank 0 with the missing ranks and the nodes from which too few came, and to those that
/// came rank 0 tells the same; InputError when the place cannot be used. Later calls throw
/// MissingRanks naming a rank that has gone.
std::unique_ptr<Control> make_tcp_control(const cluster::MeetingPlace& place,
                                          const cluster::RankInfo& self, const MeetingSpec& spec);

}  // namespace lockstep::comm
