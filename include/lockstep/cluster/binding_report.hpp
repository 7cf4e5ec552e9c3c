#pragma once

#include <string>
#include <vector>

#include "lockstep/cluster/identify.hpp"
#include "lockstep/cluster/topology.hpp"

namespace lockstep::cluster {

/// One line for a human: "rank 1 on node7: CPUs 4-7, NUMA node 0, compute 4-6, loader 7: PASS".
/// Failures and remarks follow after it.
std::string describe(const BindingReport& report, const RankInfo& rank);

/// The same, complete, as one JSON object for the run's directory. CPU sets are texts ("0-3,8");
/// `ok` is null in the second form, where nothing was bound.
std::string to_json(const BindingReport& report, const RankInfo& rank);
std::string to_json(const Plan& plan, const RankInfo& rank);

/// Which ranks' uploads are slower than half of the fastest one, for humans. `reports`: JSON of
/// each rank, in order. Pure.
std::vector<std::string> slow_uploads(const std::vector<std::string>& reports);

}  // namespace lockstep::cluster
