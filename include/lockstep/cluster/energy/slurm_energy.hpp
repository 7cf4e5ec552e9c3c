#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::cluster {

/// What Slurm's accounting says that a job has consumed, on all of its nodes and with all that it
/// did: another figure than what a run's own counters measured.
struct SlurmEnergy {
  std::optional<double> joules;
  std::string why;  ///< without joules: why there are none
};

/// Asks sacct, for 10 s at most. `job`: the job's number.
SlurmEnergy slurm_energy(const std::string& job);

/// Of "STATE|JOULES", as sacct answers. 0 joules are a cluster that does not measure. Pure.
SlurmEnergy read_slurm_energy(std::string_view answer);

}  // namespace lockstep::cluster
