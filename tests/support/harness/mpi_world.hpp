#pragma once

#include <memory>

#include "lockstep/comm/control_plane.hpp"
#include "lockstep/comm/worlds/world.hpp"

namespace lockstep::test {

/// The process's MPI world: made before the first test case, ended after the last.
comm::World& world();

/// Over MPI; they live as long as the process. Collective.
comm::ControlPlane& make_plane(double deadline_s, const comm::ActivityTracker& activity = {});
/// Those of a new plane.
comm::Control* make_control(double deadline_s, const comm::ActivityTracker& activity = {});
std::unique_ptr<comm::Communicator> make_communicator(double deadline_s,
                                                      const comm::ActivityTracker& activity = {});

/// Whether `mine` is true on every rank. Collective: every rank of the world calls it. All ranks
/// get the same answer, so that REQUIRE(on_every_rank(...)) passes or fails everywhere at once.
bool on_every_rank(bool mine);

}  // namespace lockstep::test
