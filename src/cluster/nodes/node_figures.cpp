#include "lockstep/cluster/nodes/node_figures.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace lockstep::cluster {

NodeFigures combine(const std::vector<NodeFigures>& ranks) {
  check(!ranks.empty(), "a node has ranks");
  NodeFigures node = ranks.front();
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    const NodeFigures& other = ranks[rank];
    node.flops_per_s = std::min(node.flops_per_s, other.flops_per_s);
    node.cpu_share += other.cpu_share;
    node.copy_bytes_per_s += other.copy_bytes_per_s;
    node.memory_bytes = std::max(node.memory_bytes, other.memory_bytes);
    if (!node.disk) node.disk = other.disk;
    node.facts.insert(other.facts.begin(), other.facts.end());
  }
  node.cpu_share /= static_cast<double>(ranks.size());
  return node;
}

}  // namespace lockstep::cluster
