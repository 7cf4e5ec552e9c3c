#pragma once

#include <memory>

#include "lockstep/cluster/identify.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/liveness/heartbeat.hpp"

namespace lockstep::app {

/// The connection that a command needs: `control` is enough where NCCL moves the tensors.
enum class Needs { mpi, control };

/// How this process was launched and how it reaches the other ranks. `world` and the members after
/// it exist only after start(): only commands that need MPI start it, after the environment was
/// checked.
struct Launch {
  int argc = 0;
  char** argv = nullptr;
  double silence_s = 20;  ///< after which a rank counts as lost
  /// Declared before the world, so that it also watches the ranks in MPI_Finalize. Null for one
  /// rank.
  std::unique_ptr<liveness::Heartbeat> heartbeat;
  std::unique_ptr<comm::World> world;
  std::unique_ptr<comm::Control> control;
  comm::Nodes nodes;  ///< where all ranks run
  cluster::RankInfo rank;

  /// Checks the environment, starts MPI, compares both views of each rank's identity, and tells the
  /// log which rank speaks. Throws cluster::LaunchError where MPI cannot join the ranks; with
  /// Needs::control they then meet without it, if they can.
  void start(double deadline_s = 60, Needs needs = Needs::mpi);
  /// Where srun did not connect the ranks to MPI, they meet over TCP: afterwards there is `control`
  /// but no `world`. False where only MPI knows the ranks.
  bool meet_without_mpi(double deadline_s);
  /// Finds absent ranks by the heartbeat; empty without one. Must not be called after this launch
  /// is destroyed.
  comm::FindAbsence find_absence() const;

 private:
  liveness::HeartbeatSpec heartbeat_spec(double deadline_s) const;
};

/// This process's rank according to its environment, for commands that need one process and no MPI:
/// rank 0 of 1 where the environment says nothing, or nonsense.
cluster::RankInfo rank_by_environment();

}  // namespace lockstep::app
