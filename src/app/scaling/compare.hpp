#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

/// Prints a table of runs, compared with the one on the fewest ranks.
int compare_runs(const std::vector<std::string>& runs, bool json);

}  // namespace lockstep::app
