#include "lockstep/comm/grid.hpp"

#include "lockstep/base/error.hpp"

namespace lockstep::comm {
namespace {

/// The axis of `count` places whose neighbours are `apart` ranks from each other.
GridAxis axis_of(int rank, int count, int apart) {
  GridAxis axis{.index = rank / apart % count, .count = count, .ranks = {}};
  for (int other = 0; other < count; ++other)
    axis.ranks.push_back(rank + (other - axis.index) * apart);
  return axis;
}

}  // namespace

Grid::Grid(int rank, const GridShape& shape)
    : replicas(axis_of(rank, shape.replicas, shape.tiles)),
      stages(axis_of(rank, shape.stages, shape.tiles * shape.replicas)),
      tiles(axis_of(rank, shape.tiles, 1)) {
  check(rank >= 0 && rank < ranks(), "a rank of the grid");
}

}  // namespace lockstep::comm
