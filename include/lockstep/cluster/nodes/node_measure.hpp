#pragma once

#include <filesystem>
#include <vector>

#include "lockstep/cluster/nodes/node_figures.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"

namespace lockstep::cluster {

/// One rank's part of the measurement, without facts and disk. Runs a thread on each core for about
/// a second; the ranks of all nodes should call it at the same time.
NodeFigures measure_cores(const std::vector<CpuSet>& cores);

/// Writes a file of 16 MB into the directory (or its nearest existing parent), reads it back and
/// removes it. The figures hold an error when that fails or takes longer than 5 s, as on a file
/// system that hangs.
DiskFigures measure_disk(const std::filesystem::path& directory);

}  // namespace lockstep::cluster
