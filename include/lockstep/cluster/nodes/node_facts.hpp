#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/cluster/topology/machine.hpp"

namespace lockstep::cluster {

/// This node's facts: kernel, processor, the program's libraries with their build ids, limits, GPU
/// driver, and which of `paths` can be read.
std::map<std::string, std::string> node_facts(const Machine& machine,
                                              const std::vector<std::string>& paths);

}  // namespace lockstep::cluster
