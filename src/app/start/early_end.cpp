#include "app/start/early_end.hpp"

#include "lockstep/base/error.hpp"
#include "lockstep/cluster/rendezvous.hpp"
#include "lockstep/comm/tcp_control.hpp"

namespace lockstep::app {

void meet_and_leave(const Launch& launch, double within_s) {
  if (launch.started || launch.world) return;
  try {
    const cluster::RankInfo self = rank_by_environment();
    if (self.world == 1) return;
    const auto place = cluster::meeting_place(cluster::process_environment(), self);
    if (place) comm::make_tcp_control(*place, self, {.deadline_s = within_s});
  } catch (const Error&) {
    // No one came: all have the same fault, or have not started yet.
  }
}

}  // namespace lockstep::app
