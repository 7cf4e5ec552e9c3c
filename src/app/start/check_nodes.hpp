#pragma once

#include <string>
#include <vector>

#include "app/start/launch.hpp"

namespace lockstep::app {

struct NodeCheckSpec {
  std::string directory;           ///< a file is written there from each node
  std::vector<std::string> paths;  ///< that every node should be able to read
  bool require = false;            ///< a node that should be excluded is an error
};

struct NodeCheck {
  bool passed = true;
  std::string json;  ///< on rank 0
};

/// Measures every node and the links between them, all at the same time, and compares them. Rank 0
/// logs what is unusual, traps of the nodes' settings too, with the option that leaves bad nodes
/// out. Takes a few seconds; call it before anything is bound. Collective. Throws Error when a rank
/// does not answer.
NodeCheck check_nodes(Launch& launch, const NodeCheckSpec& spec);

}  // namespace lockstep::app
