#pragma once

#include <string>
#include <vector>

#include "lockstep/cluster/nodes/node_measure.hpp"

namespace lockstep::cluster {

/// The nodes and links that differ from the others.
struct NodeFindings {
  std::vector<std::string> findings;  ///< one line each, for humans: which node, what, the others
  std::vector<std::string> exclude;   ///< the nodes to leave out, sorted
};

/// Compares nodes with each other. A node is excluded when one of its figures is far below that of
/// the others, when most of its links are far slower than usual, when its disk cannot be used
/// though others' can, or when it differs in a fact on which most nodes agree. A finding that
/// cannot be blamed on one node (a single slow link, two nodes that differ) excludes no node. Pure.
NodeFindings judge_nodes(const std::vector<NodeFigures>& nodes,
                         const std::vector<LinkFigures>& links);

/// All figures and findings as one JSON object for the run's directory.
std::string to_json(const std::vector<NodeFigures>& nodes, const std::vector<LinkFigures>& links,
                    const NodeFindings& findings);

}  // namespace lockstep::cluster
