#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::sys {

/// Reads one environment variable; a test passes a map.
using EnvLookup = std::function<std::optional<std::string>(std::string_view)>;
EnvLookup process_environment();

/// What MPI itself says, after MPI_Init.
struct MpiWorld {
  int rank = 0, world = 1;
  int local_rank = 0, local_size = 1;  ///< of MPI_COMM_TYPE_SHARED
};

/// Who said who this process is. `mpi`: no launcher that lockstep knows, but MPI has a world of
/// several ranks, and it is believed.
enum class Authority { open_mpi, slurm, mpi, alone };
const char* to_string(Authority authority);

/// Who this process is.
struct RankInfo {
  int rank = 0, world = 1;
  int local_rank = 0, local_size = 1;
  Authority authority = Authority::alone;
  std::string host;  ///< gethostname(), never $HOSTNAME
  std::vector<std::string>
      ignored;  ///< what other launchers' variables said and why it does not count; for humans
};

/// The rule that is right under mpirun, srun, both and neither: OMPI_COMM_WORLD_*; else SLURM_*
/// when SLURM_STEP_ID is set (and is no batch or interactive shell's); else alone. Checked against
/// `mpi` when it is given. Throws InputError naming the variable and both values for junk, for a
/// missing companion, for rank >= world, and when the launcher and MPI contradict each other (with
/// what to change).
RankInfo identify(const EnvLookup& env, const std::optional<MpiWorld>& mpi);

/// Whether a launcher of several ranks started this process, so that there is a world to join.
bool launched(const EnvLookup& env);

/// Before MPI_Init: the launches that would die inside it (an srun whose --mpi= does not fit the
/// MPI library) as a text that says what to change; nothing when there is no reason to fear.
std::optional<std::string> launch_warning(const EnvLookup& env);

}  // namespace lockstep::sys
