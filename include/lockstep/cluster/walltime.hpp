#pragma once

#include <optional>
#include <string_view>

#include "lockstep/cluster/identify.hpp"

namespace lockstep::cluster {

/// Seconds until this process's allocation ends, by SLURM_JOB_END_TIME where Slurm sets it, else by
/// squeue. Nothing outside a Slurm job, for one without a limit, and where Slurm does not answer
/// within 10 s.
std::optional<double> allocation_left_s(const EnvLookup& env);

/// What squeue's %L says ("1-02:03:04", "2:03:04", "03:04") in seconds; nothing for other texts,
/// such as UNLIMITED.
std::optional<double> read_time_left(std::string_view text);

}  // namespace lockstep::cluster
