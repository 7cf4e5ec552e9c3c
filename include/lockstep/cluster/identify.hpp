#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep::cluster {

/// Reads one environment variable; a test passes a map.
using EnvLookup = std::function<std::optional<std::string>(std::string_view)>;
EnvLookup process_environment();

/// The values that this machine's srun takes for --mpi=; empty when there is no srun.
using SrunMpiTypes = std::function<std::vector<std::string>()>;
/// Asks srun itself (srun --mpi=list), once per call.
std::vector<std::string> srun_mpi_types();

/// What MPI itself says, after MPI_Init.
struct MpiWorld {
  int rank = 0, world = 1;
  int local_rank = 0, local_size = 1;  ///< of MPI_COMM_TYPE_SHARED
};

/// What is known of the MPI library before MPI_Init.
struct MpiLibrary {
  std::string name;         ///< "Open MPI v4.1.4"
  bool needs_pmix = false;  ///< under srun it can join a world by PMIx only, and this is certain
};

/// Who said who this process is. `mpi`: no launcher that lockstep knows, but MPI has a world of
/// several ranks, and it is believed. `pmix` never decides: it says a rank but not of how many.
enum class Authority { open_mpi, slurm, flux, pals, pmi, pmix, torchrun, mpi, alone };
const char* to_string(Authority authority);

/// What one launcher's variables, or MPI, say about this process. A number that is not said, or is
/// none, is absent.
struct Claim {
  Authority source = Authority::alone;
  std::optional<int> rank, world, local_rank, local_size;
  std::string node;  ///< the node's name or index in the source's words; may be empty
  std::string said;  ///< the variables: "SLURM_PROCID=0, SLURM_NTASKS=4"
  bool taken = false;
  std::string why;  ///< why it counts or does not
};

/// Who this process is.
struct RankInfo {
  int rank = 0, world = 1;
  int local_rank = 0, local_size = 1;
  Authority authority = Authority::alone;
  std::string host;           ///< gethostname(), never $HOSTNAME
  std::vector<Claim> claims;  ///< everybody who said something, the order of authority
  /// The claims that differ from what was taken, and why they do not count.
  std::vector<std::string> ignored;
};

/// A launch that cannot work, of which every rank finds the same: rank 0 alone needs to say it.
class LaunchError : public InputError {
 public:
  using InputError::InputError;
};

/// The rule that is right under mpirun, srun, both and neither: OMPI_COMM_WORLD_*; else SLURM_*
/// when SLURM_STEP_ID is set (and is no batch or interactive shell's); else FLUX_*; else PALS_*;
/// else PMI_*; else torchrun's RANK and WORLD_SIZE; else alone. Checked against `mpi` when it is
/// given, which also fills in what the authority does not say. Throws InputError naming the
/// variable and both values for junk, for a missing companion, for rank >= world, and when the
/// launcher and MPI contradict each other (with the line to change; `types` says what srun offers).
RankInfo identify(const EnvLookup& env, const std::optional<MpiWorld>& mpi,
                  const SrunMpiTypes& types = {});

/// Whether a launcher of several ranks started this process, so that there is a world to join.
bool launched(const EnvLookup& env);

/// A launch that was seen to go wrong before MPI_Init.
struct LaunchDoubt {
  bool certain = false;  ///< MPI_Init would end this process; else it may
  std::string text;      ///< what is wrong, and the line to write
};

/// Before MPI_Init: an srun that offers the MPI library nothing that it speaks. Some libraries end
/// the process inside MPI_Init then, others make a world of one rank of each.
std::optional<LaunchDoubt> doubt_launch(const EnvLookup& env, const MpiLibrary& library,
                                        const SrunMpiTypes& types);

}  // namespace lockstep::cluster
