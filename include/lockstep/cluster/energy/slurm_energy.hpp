#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep::cluster {

/// What Slurm's accounting says that a job has consumed, on all of its nodes and with all that it
/// did: another figure than what a run's own counters measured.
struct SlurmEnergy {
  std::optional<double> joules;
  std::string why;  ///< without joules: why there are none
};

/// Asks sacct, for 10 s at most. `job`: as by slurm_job().
SlurmEnergy slurm_energy(const std::string& job);

/// Of the state and the joules of each time that the job was started: of all of them together. 0
/// joules are a cluster that does not measure. Pure.
SlurmEnergy read_slurm_energy(const std::vector<std::vector<std::string>>& starts);

}  // namespace lockstep::cluster
