#include "lockstep/comm/worlds/world.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <utility>

#include "lockstep/device/idle.hpp"
#include "ports/mpi/call.hpp"
#include "ports/mpi/factories.hpp"
#include "ports/mpi/rank_deadline.hpp"

namespace lockstep::mpi {
namespace {

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  must(MPI_Get_library_version(text, &length));
  const std::string version(text, static_cast<std::size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

comm::WorldFacts ask_mpi() {
  comm::WorldFacts facts;
  must(MPI_Comm_rank(MPI_COMM_WORLD, &facts.rank));
  must(MPI_Comm_size(MPI_COMM_WORLD, &facts.world));
  facts.library = library_version();
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

/// A separate communicator for one kind of messages. Collective. MPI_Finalize frees it: freeing it
/// earlier would be one more wait for all ranks.
MPI_Comm duplicate_world(double deadline_s, RollCall& roll_call) {
  RankDeadline deadline(roll_call, deadline_s, "making a communicator");
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  must(MPI_Comm_idup(MPI_COMM_WORLD, &made, &request));
  for (device::Idle idle; !finished(request); idle()) deadline.poll();
  return made;
}

}  // namespace

}  // namespace lockstep::mpi

namespace lockstep::comm {

using namespace mpi;

struct World::Impl {
  explicit Impl(MPI_Comm comm) : roll_call(comm) {}
  RollCall roll_call;
};

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
          facts_.library + " was built without MPI_THREAD_MULTIPLE; use a build that has it");
  impl_ = std::make_unique<Impl>(MPI_COMM_WORLD);  // no other messages use this one
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

void World::ask_first(FindAbsence find_absence) {
  impl_->roll_call.ask_first(std::move(find_absence));
}

std::unique_ptr<Control> World::make_control(double deadline_s, const ActivityTracker& activity) {
  return make_mpi_control(duplicate_world(deadline_s, impl_->roll_call), deadline_s,
                          impl_->roll_call, activity);
}

std::unique_ptr<Communicator> World::make_communicator(double deadline_s,
                                                       const ActivityTracker& activity) {
  return make_mpi_communicator(duplicate_world(deadline_s, impl_->roll_call), deadline_s,
                               impl_->roll_call, activity);
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
