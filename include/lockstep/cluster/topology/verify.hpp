#pragma once

#include <string>
#include <vector>

#include "lockstep/cluster/topology/binding_report.hpp"
#include "lockstep/cluster/topology/pages.hpp"

namespace lockstep::cluster {

/// Reads back where the process's threads run: each of the plan's compute threads needs one on its
/// CPUs. Adds this to the report, which fails when one is missing.
void verify_threads(BindingReport& report);

/// Adds where the pages of `what` are to the report. With several NUMA nodes the report fails when
/// judge_pages() finds a reason.
void verify_pages(BindingReport& report, const std::string& what,
                  const std::vector<Memory>& memory);

}  // namespace lockstep::cluster
