#pragma once

#include <array>
#include <span>

#include "lockstep/cluster/identity/identify.hpp"

namespace lockstep::cluster {

/// Names of variables with the same meaning; the first that is set counts.
using Alternatives = std::array<const char*, 2>;

/// The variables in which one launcher describes a process; "" for what it does not say.
struct Launcher {
  Authority source;
  Alternatives rank, world, local_rank, local_size;
  const char* node;
};

/// All launchers that lockstep knows, in the order of authority.
std::span<const Launcher> launchers();

/// Whether this launcher started the process as a rank. It is then the authority, unless an earlier
/// one in the list is.
bool decides(const EnvLookup& env, const Launcher& launcher);

/// Reads an authority's claim. Throws InputError for junk, for missing variables and for numbers
/// that cannot belong to one launch.
Claim read_strictly(const EnvLookup& env, const Launcher& launcher);

/// Reads a launcher's claim, whether it counts or not; nothing when no variable is set.
std::optional<Claim> read_claim(const EnvLookup& env, const Launcher& launcher);

/// The first name whose variable is set, else the first name.
const char* name_of(const EnvLookup& env, const Alternatives& names);

/// Whether srun started this step: it is neither a batch script's nor an interactive shell's.
bool in_slurm_step(const EnvLookup& env);

/// Slurm's "2(x3),1" as the tasks of nodes 0, 1, ...; empty for a text of another form.
std::vector<int> tasks_per_node(std::string_view text);

}  // namespace lockstep::cluster
