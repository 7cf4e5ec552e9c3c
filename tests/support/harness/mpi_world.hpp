#pragma once

#include "lockstep/comm/worlds/world.hpp"

namespace lockstep::test {

/// The process's MPI world: made before the first test case, ended after the last.
comm::World& world();

/// Whether `mine` is true on every rank. Collective: every rank of the world calls it. All ranks
/// get the same answer, so that REQUIRE(on_every_rank(...)) passes or fails everywhere at once.
bool on_every_rank(bool mine);

}  // namespace lockstep::test
