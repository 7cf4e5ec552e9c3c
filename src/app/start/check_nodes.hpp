#pragma once

#include <string>
#include <vector>

#include "app/start/launch.hpp"

namespace lockstep::app {

struct NodeCheckSpec {
  std::string directory;           ///< a file is written there from each node
  std::vector<std::string> paths;  ///< which every node should be able to read
  bool require = false;            ///< a node that should be excluded is an error
};

struct NodeCheck {
  bool passed = true;
  std::string json;
};

/// Measures every node and the links between them, all at the same time, compares, and says on
/// rank 0 what stands out, with the line that leaves the bad nodes out. Takes a few seconds; to be
/// done before anything is bound. Collective. Throws Error when a rank does not answer.
NodeCheck check_nodes(Launch& launch, const NodeCheckSpec& spec);

}  // namespace lockstep::app
