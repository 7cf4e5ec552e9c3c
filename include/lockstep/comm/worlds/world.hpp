#pragma once

#include <functional>
#include <memory>

#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/comm/fabric.hpp"

namespace lockstep::comm {

/// Describes the MPI library that this program is linked with. May be called before MPI_Init.
cluster::MpiLibrary mpi_library();

/// This process's identity, as MPI reports it.
struct WorldFacts {
  int rank = 0, world = 1;
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
  /// Open MPI 5 ends its process as soon as the network closes a connection to another rank,
  /// whatever its calls are told to do with errors, and Open MPI 4 does not. From now on it waits
  /// for that long before, so that a heartbeat can say which rank is lost.
  void report_lost_ranks_within(double seconds);
  /// Waits until every rank has called this. It has no deadline: where a rank ends instead, the
  /// launcher ends all.
  void meet();
  /// Collective, on a separate communicator. Throws Error when not all have come in time.
  std::unique_ptr<Fabric> make_fabric(double deadline_s);
  /// Ends every rank with `status`; does not return. Safe from any thread. No rank should be inside
  /// MPI_Finalize then: it leaves a fence unfinished, over which mpirun crashes or hangs at its own
  /// end about once in a hundred times (libpmix 4.2.2, PMIx_server_finalize).
  [[noreturn]] static void abort(int status);

 private:
  WorldFacts facts_;
};

}  // namespace lockstep::comm
