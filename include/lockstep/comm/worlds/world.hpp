#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/waits/absence.hpp"

namespace lockstep::comm {

/// Describes the MPI library that this program is linked with. May be called before MPI_Init.
cluster::MpiLibrary mpi_library();

/// This process's identity, as MPI reports it.
struct WorldFacts {
  int rank = 0, world = 1;
  std::string library;  ///< "Open MPI v4.1.4 ..."
};

/// MPI from MPI_Init_thread to MPI_Finalize. One per process, made before any thread that calls
/// MPI; what it makes must not outlive it. No other wait is inside MPI: this polls and naps, so
/// that ranks that wait leave the cores to others. For the same reason Open MPI's ranks do not
/// yield here, whatever OMPI_MCA_mpi_yield_when_idle says.
class World {
 public:
  /// Calls `started` after MPI_Init returns on this rank, and before any message. Under srun, Open
  /// MPI 4.1 may let one rank leave MPI_Init while others are still inside; a message that reaches
  /// them too early makes them crash (a jump to address 0 in its btl_tcp).
  World(int& argc, char**& argv, const std::function<void()>& started = {});
  ~World();
  const WorldFacts& facts() const { return facts_; }
  /// Waits until every rank has called this. It has no deadline: where a rank ends instead, the
  /// launcher ends all.
  void meet();
  /// A wait whose deadline has passed will call this first, before it asks the ranks.
  void ask_first(FindAbsence find_absence);
  std::unique_ptr<Control> make_control(double deadline_s, const ActivityTracker& activity = {});
  std::unique_ptr<Communicator> make_communicator(double deadline_s,
                                                  const ActivityTracker& activity = {});
  /// Ends every rank with `status`; does not return. Safe from any thread. No rank should be inside
  /// MPI_Finalize then: it leaves a fence unfinished, over which mpirun crashes or hangs at its own
  /// end about once in a hundred times (libpmix 4.2.2, PMIx_server_finalize).
  [[noreturn]] static void abort(int status);

 private:
  struct Impl;
  WorldFacts facts_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::comm
