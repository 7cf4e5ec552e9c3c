#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "lockstep/base/error.hpp"
#include "lockstep/cluster/identity/rendezvous.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/waits/absence.hpp"

namespace lockstep::comm {

/// Ranks are missing or have gone; what() names them.
class MissingRanks : public Error {
 public:
  explicit MissingRanks(const std::string& what, bool told_by_rank_0 = false)
      : Error(what, Ending::lost_rank), told(told_by_rank_0) {}
  explicit MissingRanks(const WaitFinding& found) : Error(found.text, found.ending), told(false) {}
  const bool told;  ///< rank 0 has reported it; the others need not
};

/// How long a rank that sees another one gone waits for the heartbeats, which see it within three
/// seconds, know more, and end this process.
constexpr double time_for_heartbeat_s = 10;

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
  /// Called in a later meeting when a rank has gone, before MissingRanks is thrown.
  std::function<void()> rank_gone = {};
  /// Asked in a later meeting when the deadline has passed or a connection has ended. What it knows
  /// becomes a part of what MissingRanks says.
  FindAbsence find_absence = {};
  ActivityTracker activity = {};  ///< waits in later meetings are marked there
};

/// On rank 0, which ends before the ranks have met, and has reported why: tells the others as they
/// come, until all know or for `within_s`. Their make_tcp_control throws MissingRanks, `told`, with
/// ended_text(why).
void turn_ranks_away(const cluster::MeetingPlace& place, const cluster::RankInfo& self,
                     std::string_view why, double within_s);
std::string ended_text(std::string_view why);

/// Control over TCP, for ranks that MPI does not connect: enough to agree and to exchange NCCL's
/// id. All ranks call it; rank 0 listens and writes its address to the place, and the others
/// connect. Peers of another job or an earlier start, without the secret, or with a rank that is
/// taken are turned away and do not disturb the rest.
/// Throws MissingRanks when not all came in time or one has gone again. On rank 0 it names the
/// missing ranks and the nodes from which too few came; rank 0 reports the same to those that came.
/// Throws InputError when the place cannot be used, LaunchError when that holds for all ranks.
/// Later calls throw MissingRanks naming a rank that has gone, or whose connection has ended though
/// it may be alive.
std::unique_ptr<Control> make_tcp_control(const cluster::MeetingPlace& place,
                                          const cluster::RankInfo& self, const MeetingSpec& spec);

}  // namespace lockstep::comm
