#pragma once

#include <memory>
#include <optional>

#include "lockstep/cluster/identity/rendezvous.hpp"
#include "lockstep/comm/control_plane.hpp"
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
  enum class Kind {
    not_started,
    joined,          ///< start() was called: the other ranks may know of this one
    left_to_rank_0,  ///< only rank 0 works
    independent      ///< the processes do not wait for each other, nor end together
  };
  Kind kind = Kind::not_started;
  /// Declared before the world, so that it also watches the ranks in MPI_Finalize. Null for one
  /// rank.
  std::unique_ptr<liveness::Heartbeat> heartbeat;
  std::unique_ptr<comm::World> world;     ///< null without MPI
  std::shared_ptr<comm::Fabric> tensors;  ///< MPI's; null where they go over TCP
  std::unique_ptr<comm::ControlPlane> plane;
  comm::Control* control = nullptr;  ///< the plane's
  comm::Nodes nodes;                 ///< where all ranks run
  cluster::RankInfo rank;

  /// Checks the environment, joins the ranks, compares both views of each rank's identity, and
  /// tells the log which rank speaks. The ranks agree over TCP; MPI, where srun or mpirun connects
  /// them to it, carries the tensors, and agrees where TCP is blocked. A process that no launcher
  /// started is a separate world, and starts no MPI: that would take 0.3 s, and a daemon. Throws
  /// cluster::LaunchError where nothing joins the ranks, and comm::MissingRanks.
  void start(double deadline_s = 60);
  /// In place of start(), for processes that need no others: takes the rank from the environment,
  /// and tells it to the log. Throws cluster::LaunchError where that contradicts itself.
  void stay_independent();
  /// In place of start(), for a command of which only rank 0 does something: true on the other
  /// ranks, which then have nothing to do. Under mpirun they wait in MPI until rank 0 ends, so that
  /// its error can end all.
  bool leave_to_rank_0();
  /// Where the ranks of a Slurm step can meet that have not yet; else nothing. Throws
  /// cluster::LaunchError.
  std::optional<cluster::MeetingPlace> meeting_place() const;
};

/// This process's rank according to its environment, for commands that need one process and no MPI:
/// rank 0 of 1 where the environment says nothing, or nonsense.
cluster::RankInfo rank_by_environment();
/// For `command`, which starts ranks itself. Throws InputError where this process is one of
/// several.
void require_no_ranks(const std::string& command);

}  // namespace lockstep::app
