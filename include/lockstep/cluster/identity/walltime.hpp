#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/cluster/identity/identify.hpp"

namespace lockstep::cluster {

/// Seconds until this process's allocation ends, from SLURM_JOB_END_TIME when Slurm sets it and
/// this node's clock may be right, else from squeue; a limit that is made longer later is not seen.
/// Nothing outside a Slurm job, in a job without a limit, and when Slurm does not
/// answer within 10 s.
std::optional<double> allocation_left_s(const EnvLookup& env);

/// Converts squeue's %L ("1-02:03:04", "2:03:04", "03:04") to seconds; nothing for other texts,
/// such as UNLIMITED.
std::optional<double> read_time_left(std::string_view text);

/// A value of --time in seconds. Infinite and 0, which mean no limit, are 0; nothing for a text
/// that Slurm does not accept.
std::optional<double> read_time_limit(std::string_view text);

/// Seconds from the SIGTERM with which mpirun answers Ctrl-C (or a SIGTERM to itself) to its
/// SIGKILL. Nothing under other launchers, which wait much longer.
std::optional<double> mpirun_patience_s(const EnvLookup& env);

/// What to know about a variable of this environment that makes Open MPI's ranks yield the core
/// without end while they wait: its name, what it does, and what lockstep does about it. Empty
/// where none does.
std::string describe_endless_yields(const EnvLookup& env);

}  // namespace lockstep::cluster
