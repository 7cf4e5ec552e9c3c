#pragma once

#include <string>
#include <vector>

#include "lockstep/cluster/nodes/node_figures.hpp"
#include "lockstep/cluster/nodes/node_judge.hpp"

namespace lockstep::cluster {

/// All figures and findings as one JSON object for the run's directory.
std::string to_json(const std::vector<NodeFigures>& nodes, const std::vector<LinkFigures>& links,
                    const NodeFindings& findings);

}  // namespace lockstep::cluster
