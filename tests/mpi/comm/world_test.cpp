#include "lockstep/comm/worlds/world.hpp"

#include <dlfcn.h>

#include <catch2/catch.hpp>

#include "tests/support/harness/mpi_world.hpp"

using namespace lockstep;
using lockstep::test::on_every_rank;
using lockstep::test::world;

TEST_CASE("MPI's facts agree with each other", "[mpi]") {
  const comm::WorldFacts& facts = world().facts();
  REQUIRE(on_every_rank(facts.rank >= 0 && facts.rank < facts.world));
  REQUIRE(on_every_rank(!comm::mpi_library().name.empty()));
}

TEST_CASE("Open MPI's calls do not yield the core, though mpirun asks for it", "[mpi]") {
  using Switch = bool (*)(bool);
  const auto yields =
      reinterpret_cast<Switch>(::dlsym(RTLD_DEFAULT, "opal_progress_set_yield_when_idle"));
  REQUIRE(on_every_rank(!yields || !yields(false)));
}

TEST_CASE("ranks are numbered without gaps", "[mpi]") {
  const comm::WorldFacts& facts = world().facts();
  const auto control = test::make_control(30);
  std::vector<double> mine(static_cast<std::size_t>(facts.world), 0.0);
  mine[static_cast<std::size_t>(facts.rank)] = 1;
  const std::vector<double> once(mine.size(), 1.0);
  REQUIRE(on_every_rank(control->sum(mine, "ranks") == once));
}
