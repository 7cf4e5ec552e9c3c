#include "lockstep/comm/nodes.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/mpi/train/train_fixture.hpp"
#include "tests/support/harness/mpi_world.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

TEST_CASE("the groups of a grid are made by their colours, and each sums on its own",
          "[mpi][grid]") {
  const auto communicator = test::make_communicator(60);
  const int ranks = communicator->world();
  for (int replicas = 1; replicas <= ranks; ++replicas)
    for (int stages = 1; replicas * stages <= ranks; ++stages) {
      if (ranks % (replicas * stages) != 0) continue;
      const comm::Grid grid(
          communicator->rank(),
          {.replicas = replicas, .stages = stages, .tiles = ranks / (replicas * stages)});
      for (const comm::GridAxis& axis : {grid.replicas, grid.stages, grid.tiles}) {
        const auto group = communicator->split(axis.colour(), axis.index, "group");
        REQUIRE(on_every_rank(group->rank() == axis.index && group->world() == axis.count));
        float sum = static_cast<float>(communicator->rank()), want = 0;
        for (const int rank : axis.ranks) want += static_cast<float>(rank);
        group->all_reduce(comm::elements(&sum, 1), comm::Reduction::sum, "ranks",
                          communicator->network());
        communicator->network().synchronize();
        REQUIRE(on_every_rank(sum == want));
      }
    }
}

TEST_CASE("replicas train alike wherever their group begins, and groups do not mix",
          "[grid][train]") {
  const auto control = test::make_control(60);
  const auto communicator = test::make_communicator(60);
  if (control->world() % 2 != 0) return;
  const auto backend = make_cpu_backend({});
  const comm::Grid grid(control->rank(), {.replicas = control->world() / 2, .tiles = 2});
  const auto replicas =
      communicator->split(grid.replicas.colour(), grid.replicas.index, "replicas");
  train::Trainer trainer(small_trainer(2), *backend, *replicas);
  const std::size_t each = 4, global = each * static_cast<std::size_t>(grid.replicas.count);
  const Rows rows(3 * global);
  // The tiles of a replica have the same rows here; the first group later takes others.
  const auto train = [&](std::size_t first) {
    const std::size_t mine = each * static_cast<std::size_t>(grid.replicas.index);
    trainer.step(rows.batch(first + mine, each), global, 0.05f);
    const std::uint32_t hash = trainer.parameters().hash();
    return control->gather(std::to_string(hash), "hashes");
  };
  const auto all_equal = [](const std::vector<std::string>& hashes) {
    return std::all_of(hashes.begin(), hashes.end(),
                       [&](const std::string& one) { return one == hashes.front(); });
  };
  REQUIRE(on_every_rank(all_equal(train(0))));
  REQUIRE(on_every_rank(all_equal(train(global))));
  const auto apart = train(grid.tiles.index == 0 ? 2 * global : 0);
  REQUIRE(on_every_rank(!all_equal(apart)));
  bool as_group = true;
  for (const int rank : grid.replicas.ranks)
    as_group = as_group && apart[static_cast<std::size_t>(rank)] ==
                               apart[static_cast<std::size_t>(control->rank())];
  REQUIRE(on_every_rank(as_group));
}
