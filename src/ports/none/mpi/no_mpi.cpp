#include <cstdlib>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/worlds/world.hpp"

namespace lockstep::comm {

cluster::MpiLibrary mpi_library() { return {.name = "no MPI", .is_none = true}; }

World::World(int&, char**&, const std::function<void()>&) {
  throw InputError("this program was built without MPI");
}
World::~World() = default;
void World::report_lost_ranks_within(double) {}
void World::meet() {}
std::unique_ptr<Fabric> World::make_fabric(double) { return nullptr; }
void World::abort(int status) { std::_Exit(status); }

}  // namespace lockstep::comm
