#include "lockstep/reduce/tree.hpp"

#include <algorithm>
#include <bit>

#include "lockstep/base/error.hpp"
#include "lockstep/base/share.hpp"

namespace lockstep::reduce {
namespace {

std::size_t middle_of(const ShardRange& node) {
  return node.first + std::bit_floor(node.last - node.first - 1);
}

bool inside(const ShardRange& inner, const ShardRange& outer) {
  return inner.first >= outer.first && inner.last <= outer.last;
}

void collect(const ShardRange& node, const ShardRange& range, std::vector<ShardRange>& found) {
  if (node.last <= range.first || node.first >= range.last) return;
  if (inside(node, range)) return found.push_back(node);
  const std::size_t middle = middle_of(node);
  collect({node.first, middle}, range, found);
  collect({middle, node.last}, range, found);
}

/// Appends to `counts` those of the nodes below this one.
void count(const ShardRange& node, const std::vector<ShardRange>& nodes,
           std::vector<std::size_t>& counts) {
  const ShardRange all{nodes.front().first, nodes.back().last};
  if (node.last <= all.first || node.first >= all.last) return;
  if (counts.size() < nodes.size() && nodes[counts.size()] == node) return counts.push_back(0);
  check(node.last - node.first > 1, "sums of shards that are nodes of the tree");
  const std::size_t middle = middle_of(node);
  count({node.first, middle}, nodes, counts);
  count({middle, node.last}, nodes, counts);
  if (inside(node, all)) ++counts.back();
}

}  // namespace

ShardRange shards_of(std::size_t shards, std::size_t ranks, std::size_t rank) {
  check(shards >= ranks && rank < ranks, "a shard for each rank");
  return {even_begin(shards, ranks, rank), even_begin(shards, ranks, rank + 1)};
}

std::vector<ShardRange> nodes_of(std::size_t shards, const ShardRange& range) {
  check(range.first < range.last && range.last <= shards, "some of the shards");
  std::vector<ShardRange> found;
  collect({0, shards}, range, found);
  return found;
}

std::vector<std::size_t> additions_after(std::size_t shards, const std::vector<ShardRange>& nodes) {
  std::vector<std::size_t> counts;
  count({0, shards}, nodes, counts);
  check(counts.size() == nodes.size(), "sums of shards that are nodes of the tree");
  return counts;
}

ShardCost shard_cost(std::size_t shards, std::size_t ranks) {
  double sums = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    sums += static_cast<double>(nodes_of(shards, shards_of(shards, ranks, rank)).size());
  const ShardRange busiest = shards_of(shards, ranks, 0);
  const auto count = static_cast<double>(ranks);
  const auto most = static_cast<double>(busiest.last);
  return {.most = busiest.last,
          .time = most * count / static_cast<double>(shards),
          .bytes = (sums / count + 1) / 2};
}

std::size_t most_kept(std::size_t shards, std::size_t ranks) {
  std::size_t most = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const ShardRange own = shards_of(shards, ranks, rank);
    std::vector<ShardRange> leaves;
    for (std::size_t s = own.first; s < own.last; ++s) leaves.push_back({s, s + 1});
    std::size_t kept = 0;
    const std::vector<std::size_t> additions = additions_after(shards, leaves);
    for (std::size_t i = 0; i + 1 < leaves.size(); ++i)
      most = std::max(most, kept = kept + 1 - additions[i]);
  }
  return most;
}

}  // namespace lockstep::reduce
