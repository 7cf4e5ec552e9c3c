#pragma once

#include <memory>

#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/comm/worlds/world.hpp"
#include "lockstep/liveness/heartbeat.hpp"

namespace lockstep::app {

/// How this process was launched and how it reaches the other ranks. `world` and the members after
/// it exist only after start(): only commands that need other ranks start it, after the environment
/// was checked.
struct Launch {
  int argc = 0;
  char** argv = nullptr;
  comm::ActivityTracker activity;  ///< of this rank
  double silence_s = 20;           ///< after which a rank counts as lost
  bool started = false;            ///< start() was called: the other ranks may know of this one
  bool left_to_rank_0 = false;     ///< only rank 0 works: see leave_to_rank_0()
  bool independent = false;        ///< the processes do not wait for each other, nor end together
  /// Declared before the world, so that it also watches the ranks in MPI_Finalize. Null for one
  /// rank.
  std::unique_ptr<liveness::Heartbeat> heartbeat;
  std::unique_ptr<comm::World> world;  ///< null without MPI
  std::unique_ptr<comm::Control> control;
  comm::Nodes nodes;  ///< where all ranks run
  cluster::RankInfo rank;

  /// Checks the environment, starts MPI, compares both views of each rank's identity, and tells the
  /// log which rank speaks. Where srun does not connect the ranks to MPI, they meet without it. A
  /// process that no launcher started is a separate world, and starts no MPI: that would take
  /// 0.3 s, and a daemon. Throws cluster::LaunchError where neither joins the ranks, and
  /// comm::MissingRanks.
  void start(double deadline_s = 60);
  /// In place of start(), for processes that need no others: takes the rank from the environment,
  /// and tells it to the log. Throws cluster::LaunchError where that contradicts itself.
  void stay_independent();
  /// The ranks of an srun meet over TCP: afterwards there is `control`. False where only MPI knows
  /// the ranks.
  bool meet_without_mpi(double deadline_s);
  /// Finds absent ranks by the heartbeat; empty without one. Must not be called after this launch
  /// is destroyed.
  comm::FindAbsence find_absence() const;

 private:
  void be_alone();
  cluster::MpiWorld mpi_world() const;
  liveness::HeartbeatSpec heartbeat_spec(double deadline_s) const;
};

/// This process's rank according to its environment, for commands that need one process and no MPI:
/// rank 0 of 1 where the environment says nothing, or nonsense.
cluster::RankInfo rank_by_environment();

}  // namespace lockstep::app
