#include "lockstep/comm/worlds/world.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>
#include <exception>
#include <functional>

#include "lockstep/base/clock.hpp"
#include "lockstep/device/idle.hpp"
#include "ports/mpi/fabric.hpp"

namespace lockstep::mpi {
namespace {

comm::WorldFacts ask_mpi() {
  comm::WorldFacts facts;
  must(MPI_Comm_rank(MPI_COMM_WORLD, &facts.rank));
  must(MPI_Comm_size(MPI_COMM_WORLD, &facts.world));
  return facts;
}

/// Open MPI's ranks may yield the core in each call that finds nothing, and on some kernels (Linux
/// 6.18) everything else on the node then stops, even if they nap between the calls. mpirun asks
/// for that where it starts more ranks than cores, and sites may, also in a file that takes
/// precedence over the environment. So this is Open MPI's own switch, to be used after its start;
/// null in other libraries. Its start and end nap.
using SwitchYields = bool (*)(bool);
SwitchYields find_switch_of_yields() {
  return reinterpret_cast<SwitchYields>(::dlsym(RTLD_DEFAULT, "opal_progress_set_yield_when_idle"));
}

}  // namespace

}  // namespace lockstep::mpi

namespace lockstep::comm {

using namespace mpi;

// Only one thread of a rank communicates, but a watchdog may have to abort while that thread is
// inside MPI. This needs MULTIPLE, not SERIALIZED.
World::World(int& argc, char**& argv, const std::function<void()>& started) {
  const SwitchYields switch_yields = find_switch_of_yields();
  if (!switch_yields) ::setenv("OMPI_MCA_mpi_yield_when_idle", "0", 1);
  int provided = MPI_THREAD_SINGLE;
  must(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  if (switch_yields) switch_yields(false);
  must(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  must(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  if (started) started();
  facts_ = ask_mpi();
  require(provided >= MPI_THREAD_MULTIPLE,
          mpi_library().name + " was built without MPI_THREAD_MULTIPLE; use a build that has it");
}

// MPI_Finalize waits for all ranks. It is not called during an exception, after which main ends the
// world: the others may never come.
World::~World() {
  if (std::uncaught_exceptions() == 0) MPI_Finalize();
}

void World::meet() {
  MPI_Request request = MPI_REQUEST_NULL;
  must(MPI_Ibarrier(MPI_COMM_WORLD, &request));
  for (device::Idle idle; !finished(request);) idle();
}

std::unique_ptr<Fabric> World::make_fabric(double deadline_s) {
  Countdown left(deadline_s);
  return make_mpi_fabric(duplicate(MPI_COMM_WORLD, [&] {
    if (left.over())
      throw Error(fmt::format("making a communicator: not all ranks came within {} s", deadline_s));
  }));
}

void World::abort(int status) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized != 0 && finalized == 0) {
    // MPI_Abort of Open MPI is this, after six lines that say nothing about the reason.
    using Abort = int (*)(MPI_Comm, int);
    if (const auto abort = reinterpret_cast<Abort>(::dlsym(RTLD_DEFAULT, "ompi_mpi_abort")))
      abort(MPI_COMM_WORLD, status);
    MPI_Abort(MPI_COMM_WORLD, status);
  }
  std::_Exit(status);
}

}  // namespace lockstep::comm
