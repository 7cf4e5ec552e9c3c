#include <set>
#include <tuple>

#include <catch2/catch.hpp>

#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/comm/worlds/world.hpp"
#include "tests/support/harness/mpi_world.hpp"

namespace {

using namespace lockstep;

/// Collective.
cluster::RankInfo who_am_i() {
  const comm::WorldFacts& facts = test::world().facts();
  const auto control = test::make_control(30);
  const std::string host = cluster::identify(cluster::process_environment(), std::nullopt).host;
  const comm::Nodes nodes = comm::gather_nodes(*control, comm::place_of_process(host));
  return cluster::identify(
      cluster::process_environment(),
      cluster::MpiWorld{facts.rank, facts.world, static_cast<int>(nodes.local_index(facts.rank)),
                        static_cast<int>(nodes.local_size(facts.rank))});
}

}  // namespace

TEST_CASE("the launcher and MPI agree on who each rank is") {
  const cluster::RankInfo info = who_am_i();
  const comm::WorldFacts& facts = test::world().facts();
  REQUIRE(test::on_every_rank(info.rank == facts.rank && info.world == facts.world &&
                              info.local_rank < info.local_size));
}

TEST_CASE("rank and place on the node are each taken once") {
  const cluster::RankInfo info = who_am_i();
  const auto control = test::make_control(30);
  const auto ranks = control->gather(std::to_string(info.rank), "test: ranks");
  const auto places =
      control->gather(info.host + " " + std::to_string(info.local_rank), "test: places");
  const std::set<std::string> different_ranks(ranks.begin(), ranks.end());
  const std::set<std::string> different_places(places.begin(), places.end());
  const auto world = static_cast<std::size_t>(info.world);
  REQUIRE(test::on_every_rank(different_ranks.size() == world && different_places.size() == world));
}

TEST_CASE("a rank that mpirun started is in no doubt") {
  const cluster::EnvLookup env = cluster::process_environment();
  const bool by_mpirun = env("OMPI_COMM_WORLD_RANK").has_value();
  const bool doubt = cluster::doubt_launch(env, comm::mpi_library(), {}).has_value();
  REQUIRE(test::on_every_rank(!by_mpirun || !doubt));
}
