#include "app/start/early_end.hpp"

#include <optional>

#include "lockstep/base/error.hpp"
#include "lockstep/cluster/identity/rendezvous.hpp"
#include "lockstep/comm/worlds/tcp_control.hpp"

namespace lockstep::app {
namespace {

/// Nothing where the ranks have met already, or have no such place.
std::optional<cluster::MeetingPlace> place_of(const Launch& launch, const cluster::RankInfo& self) {
  if (launch.started || launch.world || launch.left_to_rank_0 || self.world == 1)
    return std::nullopt;
  return cluster::meeting_place(cluster::process_environment(), self);
}

}  // namespace

Rank0 meet_and_leave(const Launch& launch, const std::string& what, double within_s) {
  try {
    const cluster::RankInfo self = rank_by_environment();
    const auto place = place_of(launch, self);
    if (!place) return Rank0::unknown;
    comm::make_tcp_control(*place, self, {.deadline_s = within_s});
    return Rank0::is_well;
  } catch (const comm::MissingRanks& missing) {
    if (missing.told && missing.what() == comm::ended_text(what)) return Rank0::has_said_it;
  } catch (const Error&) {
    // No one came: all have the same fault, or have not started yet.
  }
  return Rank0::unknown;
}

void tell_and_leave(const Launch& launch, const std::string& what, double within_s) {
  try {
    const cluster::RankInfo self = rank_by_environment();
    if (const auto place = place_of(launch, self))
      comm::turn_ranks_away(*place, self, what, within_s);
  } catch (const Error&) {
    // Then the others speak, too.
  }
}

}  // namespace lockstep::app
