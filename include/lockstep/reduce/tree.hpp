#pragma once

// Why a tree. Floating-point sums depend on their order. A training of V shards adds their
// gradients in the order of one binary tree, whatever ranks have them: a node's two halves are
// added, and its left half is the largest power of two that leaves something to the right. So each
// rank adds what it has of the tree, and what ranks add of each other's are the nodes above.

#include <cstddef>
#include <vector>

namespace lockstep::reduce {

/// Shards [first, last) of a training: the leaves of a rank, or those below a node of the tree.
struct ShardRange {
  std::size_t first = 0, last = 0;
  bool operator==(const ShardRange&) const = default;
};

/// The shards of one of `ranks`, as even as possible; the lower ranks have one more. REQUIRES: at
/// least one for each. Pure.
ShardRange shards_of(std::size_t shards, std::size_t ranks, std::size_t rank);

/// The fewest nodes of the tree over `shards` leaves that have just the leaves of `range`, in
/// order. Pure.
std::vector<ShardRange> nodes_of(std::size_t shards, const ShardRange& range);

/// In the order of `nodes`, which are consecutive nodes of the tree: how often, once the sum of
/// this one is known, the last two sums become one. Pure.
std::vector<std::size_t> additions_after(std::size_t shards, const std::vector<ShardRange>& nodes);

/// What a rank keeps while it adds up its shards, in copies of the gradients: at most, on any of
/// them. Pure.
std::size_t most_kept(std::size_t shards, std::size_t ranks);

/// What that many shards cost on that many ranks.
struct ShardCost {
  std::size_t most = 1;  ///< shards of the busiest rank
  double time = 1;       ///< of a step, for that of an even share
  double bytes = 1;      ///< that travel, for those of an all-reduce
};
/// Pure.
ShardCost shard_cost(std::size_t shards, std::size_t ranks);

}  // namespace lockstep::reduce
