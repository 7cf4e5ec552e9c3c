#include "lockstep/comm/nodes.hpp"

#include <catch2/catch.hpp>

#include <set>
#include <tuple>

#include "lockstep/base/error.hpp"

using namespace lockstep;
using namespace lockstep::comm;

namespace {

/// Calls `judge` for each rank of many shapes.
template <class Judge>
void for_grids(const Judge& judge) {
  for (int replicas = 1; replicas <= 4; ++replicas)
    for (int stages = 1; stages <= 3; ++stages)
      for (int tiles = 1; tiles <= 3; ++tiles) {
        const GridShape shape{.replicas = replicas, .stages = stages, .tiles = tiles};
        INFO(replicas << " replicas, " << stages << " stages, " << tiles << " tiles");
        for (int rank = 0; rank < replicas * stages * tiles; ++rank) judge(rank, shape);
      }
}

}  // namespace

TEST_CASE("each rank has one place, and no two ranks have the same", "[grid]") {
  std::set<std::tuple<int, int, int>> places;
  for_grids([&](int rank, const GridShape& shape) {
    if (rank == 0) places.clear();
    const Grid grid(rank, shape);
    REQUIRE(grid.replicas.count == shape.replicas);
    REQUIRE(grid.stages.count == shape.stages);
    REQUIRE(grid.tiles.count == shape.tiles);
    REQUIRE(grid.replicas.index < shape.replicas);
    REQUIRE(grid.stages.index < shape.stages);
    REQUIRE(grid.tiles.index < shape.tiles);
    if (grid.stages.index == 0 && grid.tiles.index == 0)
      REQUIRE(grid.first_rank_of(grid.replicas.index) == rank);
    places.insert({grid.replicas.index, grid.stages.index, grid.tiles.index});
    REQUIRE(places.size() == static_cast<std::size_t>(rank) + 1);
  });
}

TEST_CASE(
    "a group holds the ranks that are elsewhere along its axis only, ascending, and all of "
    "them know it",
    "[grid]") {
  const auto judge = [](int rank, const GridShape& shape, GridAxis Grid::*axis) {
    const Grid mine(rank, shape);
    const GridAxis& group = mine.*axis;
    REQUIRE(group.ranks.size() == static_cast<std::size_t>(group.count));
    REQUIRE(group.ranks[static_cast<std::size_t>(group.index)] == rank);
    int before = -1;
    for (int index = 0; index < group.count; ++index) {
      const int other = group.ranks[static_cast<std::size_t>(index)];
      REQUIRE(other > before);
      before = other;
      Grid theirs(other, shape);
      REQUIRE((theirs.*axis).index == index);
      REQUIRE((theirs.*axis).ranks == group.ranks);
      REQUIRE((theirs.*axis).colour() == group.colour());
      theirs.*axis = group;  // so that only the other axes are compared
      REQUIRE(theirs.replicas.index == mine.replicas.index);
      REQUIRE(theirs.stages.index == mine.stages.index);
      REQUIRE(theirs.tiles.index == mine.tiles.index);
    }
  };
  for_grids([&](int rank, const GridShape& shape) {
    for (const auto axis : {&Grid::replicas, &Grid::stages, &Grid::tiles}) judge(rank, shape, axis);
  });
}

TEST_CASE("without stages and tiles the replicas are the ranks", "[grid]") {
  const Grid grid(2, {.replicas = 4});
  CHECK(grid.replicas.index == 2);
  CHECK(grid.replicas.ranks == std::vector{0, 1, 2, 3});
  CHECK(grid.stages.ranks == std::vector{2});
  CHECK(grid.tiles.ranks == std::vector{2});
  CHECK(Grid().replicas.ranks == std::vector{0});
}

TEST_CASE("tiles are neighbours, and the replicas of a stage follow each other", "[grid]") {
  const Grid grid(9, {.replicas = 3, .stages = 2, .tiles = 2});
  CHECK(grid.tiles.ranks == std::vector{8, 9});
  CHECK(grid.replicas.ranks == std::vector{7, 9, 11});
  CHECK(grid.stages.ranks == std::vector{3, 9});
}

TEST_CASE("a rank outside of the grid is an error", "[grid]") {
  CHECK_THROWS_AS(Grid(4, {.replicas = 2, .tiles = 2}), Error);
  CHECK_THROWS_AS(Grid(-1, {.replicas = 2}), Error);
}
