#pragma once

#include <array>
#include <span>

#include "lockstep/cluster/identify.hpp"

namespace lockstep::cluster {

/// Names of variables that say the same; the first that is set counts.
using Alternatives = std::array<const char*, 2>;

/// The variables in which one launcher says who a process is; "" for what it does not say.
struct Launcher {
  Authority source;
  Alternatives rank, world, local_rank, local_size;
  const char* node;
};

/// All that lockstep knows, in the order of authority.
std::span<const Launcher> launchers();

/// Whether this launcher started the process as a rank: it is then the authority, unless one before
/// it is.
bool decides(const EnvLookup& env, const Launcher& launcher);

/// What an authority says, strictly: throws InputError for junk, for what is missing and for
/// numbers that cannot belong to one launch.
Claim read_strictly(const EnvLookup& env, const Launcher& launcher);

/// What a launcher's variables say, whether it counts or not; nothing when none is set.
std::optional<Claim> read_claim(const EnvLookup& env, const Launcher& launcher);

/// The first of them that is set, else the first.
const char* name_of(const EnvLookup& env, const Alternatives& names);

/// Inside a step that srun started: not in a batch script, nor in an interactive step's shell.
bool in_slurm_step(const EnvLookup& env);

/// Slurm's "2(x3),1" as the tasks of nodes 0, 1, ...; empty when it is not of that form.
std::vector<int> tasks_per_node(std::string_view text);

}  // namespace lockstep::cluster
