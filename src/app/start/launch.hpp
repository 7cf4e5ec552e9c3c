#pragma once

#include <memory>

#include "lockstep/cluster/identify.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/liveness/heartbeat.hpp"

namespace lockstep::app {

/// What a command needs of the ranks' connection: `control` is enough where NCCL moves the tensors.
enum class Needs { mpi, control };

/// What the launcher gave this process. `world` and what follows exist only after start(): MPI is
/// started by the commands that need it, after the environment was judged.
struct Launch {
  int argc = 0;
  char** argv = nullptr;
  double silence_s = 20;  ///< after which a rank counts as lost
  /// Before the world, so that the ranks are watched in MPI_Finalize, too. Null for one rank.
  std::unique_ptr<liveness::Heartbeat> heartbeat;
  std::unique_ptr<comm::World> world;
  std::unique_ptr<comm::Control> control;
  comm::Nodes nodes;  ///< where all ranks run
  cluster::RankInfo rank;

  /// Judges the environment, starts MPI, cross-checks who is who, and tells the log which rank
  /// speaks. Throws cluster::LaunchError where MPI cannot join the ranks; with Needs::control they then
  /// meet without it, if they can.
  void start(double deadline_s = 60, Needs needs = Needs::mpi);
  /// Where srun did not connect the ranks to MPI they meet over TCP: afterwards there is `control`
  /// but no `world`. False where nobody but MPI says who is who.
  bool meet_without_mpi(double deadline_s);
  /// By the heartbeat; empty without one. It must not be called when this launch is gone.
  comm::FindAbsence find_absence() const;

 private:
  liveness::HeartbeatSpec heartbeat_spec(double deadline_s) const;
};

/// Who this process is as far as its environment tells, for the commands that are one process's
/// work and start no MPI: rank 0 of 1 where it says nothing, or nonsense.
cluster::RankInfo rank_by_environment();

}  // namespace lockstep::app
