#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/study/machine/machine.hpp"

namespace lockstep::app {

/// Logs the paths inside the node that the hwloc file describes, and what binding is worth there.
/// Returns them. Throws InputError as cluster::look_at_machine() does.
nlohmann::ordered_json show_node_paths(const std::string& hwloc_xml,
                                       const study::MachineProfile& profile);

}  // namespace lockstep::app
