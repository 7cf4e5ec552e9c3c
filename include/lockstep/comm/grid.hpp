#pragma once

// Which part of a training each rank has. Ranks are replicas of one network today; where a network
// is cut into stages, or its images into tiles, several ranks make up one replica.

#include <vector>

namespace lockstep::comm {

/// How many parts a training has each way; the ranks are their product.
struct GridShape {
  int replicas = 1, stages = 1, tiles = 1;
};

/// A rank's place along one way of the grid, and its group: the ranks that are elsewhere along this
/// way only. A group may begin at any rank and cross nodes.
struct GridAxis {
  int index = 0, count = 1;
  std::vector<int> ranks = {0};  ///< of the group, by index; ascending

  /// Differs between the groups of an axis: world.split(colour(), index, name) makes them.
  int colour() const { return ranks.front(); }
};

/// The place of one rank.
///
/// - **Replicas** train on different rows of each batch, and hold equal weights. What is shared by
///   a batch asks for them, not for ranks.
/// - **Stages** hold consecutive parts of the network, and pass activations to each other.
/// - **Tiles** hold the same part of the network, for different parts of each image.
///
/// What talks most is nearest: in the order of ranks come first the tiles of a stage, then the
/// replicas, then the stages.
struct Grid {
  Grid() = default;  ///< one rank does everything
  /// REQUIRES: `rank` is one of the shape's.
  Grid(int rank, const GridShape& shape);

  GridAxis replicas, stages, tiles;
  int ranks() const { return replicas.count * stages.count * tiles.count; }
  /// Of the first stage and tile: it speaks for the replica where all of its ranks must do alike.
  int first_rank_of(int replica) const { return replica * tiles.count; }
};

}  // namespace lockstep::comm
