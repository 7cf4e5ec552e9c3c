#pragma once

#include <limits>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "lockstep/cluster/identity/rendezvous.hpp"
#include "lockstep/comm/fabric.hpp"

namespace lockstep::comm {

/// How long ranks wait for each other.
struct MeetingSpec {
  double deadline_s = 120;
  /// For a rank that is missing while other ranks of its node are here; counts from the last rank's
  /// arrival.
  double mates_s = std::numeric_limits<double>::infinity();
  std::stop_token stop = {};  ///< cancels the meeting, which then throws Error
  /// Connect to rank 0 only by its addresses: looking up a name reads the environment, which
  /// another thread may be changing, as MPI's start does.
  bool by_address = false;
};

/// The ranks of a Slurm step meet over TCP. All ranks call it; rank 0 listens and writes its
/// address to the place, and the others connect. Peers of another job or an earlier start, without
/// the secret, or with a rank that is taken are turned away and do not disturb the rest. A later
/// ControlPlane::introduce() lets any two ranks connect.
/// Throws MissingRanks when not all came in time or one has gone again. On rank 0 it names the
/// missing ranks and the nodes from which too few came; rank 0 reports the same to those that came.
/// Throws InputError when the place cannot be used, LaunchError when that holds for all ranks.
std::unique_ptr<Fabric> meet_over_tcp(const cluster::MeetingPlace& place,
                                      const cluster::RankInfo& self, const MeetingSpec& spec);

/// The same for ranks that have a fabric and Control over it, and through it learn where rank 0
/// listens. Null on all ranks where one does not reach it; rank 0 then warns. Collective.
std::unique_ptr<Fabric> meet_over_tcp(Fabric& known, Control& control, const std::string& host);

/// On rank 0, which ends before the ranks have met, and has reported why: tells the others as they
/// come, until all know or for `within_s`. Their meet_over_tcp() throws MissingRanks, `told`, with
/// ended_text(why).
void turn_ranks_away(const cluster::MeetingPlace& place, const cluster::RankInfo& self,
                     std::string_view why, double within_s);
std::string ended_text(std::string_view why);

}  // namespace lockstep::comm
