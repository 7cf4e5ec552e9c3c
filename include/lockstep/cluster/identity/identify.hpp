#pragma once

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep::cluster {

/// Reads one environment variable; a test passes a map.
using EnvLookup = std::function<std::optional<std::string>(std::string_view)>;
EnvLookup process_environment();
/// All variables of an environment, by their names.
using Variables = std::map<std::string, std::string, std::less<>>;
Variables process_variables();

/// The values that this machine's srun accepts for --mpi=; empty when there is no srun.
using SrunMpiTypes = std::function<std::vector<std::string>()>;
/// Asks srun itself (srun --mpi=list), once per call.
std::vector<std::string> srun_mpi_types();

/// Slurm 22.05 is {22, 5}.
struct SlurmVersion {
  int year = 0, month = 0;
  auto operator<=>(const SlurmVersion&) const = default;
};
/// "slurm 24.11.5", "slurm-wlm 22.05.8"; nothing for other texts.
std::optional<SlurmVersion> read_slurm_version(std::string_view text);
/// Asks srun itself (srun --version); nothing where there is no srun, or it does not answer.
std::optional<SlurmVersion> srun_version();

/// What MPI itself says, after MPI_Init, and what its ranks have told each other.
struct MpiWorld {
  int rank = 0, world = 1;
  int local_rank = 0, local_size = 1;  ///< on its node
  /// All ranks under this kernel, if more than local_size: several nodes or containers may share
  /// one machine, and a launcher may count their ranks together.
  int machine_size = 0;
};

/// What is known about the MPI library before MPI_Init.
struct MpiLibrary {
  std::string name;         ///< "Open MPI v4.1.4"
  bool needs_pmix = false;  ///< certain: under srun it can join a world only through PMIx
  bool is_none = false;     ///< this program was built without MPI
};

/// The source of this process's identity. `declared`: LOCKSTEP_RANK, or the index of an indexed Job
/// of Kubernetes, and LOCKSTEP_WORLD. `trainer`: Kubeflow Trainer's variables for torch. `mpi`:
/// lockstep does not know the launcher, but MPI has a world of several ranks, which counts. `pmix`
/// never decides: it gives a rank, but no world size.
enum class Authority {
  declared,
  open_mpi,
  slurm,
  flux,
  pals,
  pmi,
  pmix,
  torchrun,
  trainer,
  mpi,
  alone
};
const char* to_string(Authority authority);

/// What one launcher's variables, or MPI, say about this process. A number is absent when it is not
/// given or is not a number.
struct Claim {
  Authority source = Authority::alone;
  std::optional<int> rank, world, local_rank, local_size;
  std::string node;  ///< the node's name or index in the source's words; may be empty
  std::string said;  ///< its variables: "SLURM_PROCID=0, SLURM_NTASKS=4"
  bool taken = false;
  std::string why;  ///< why it counts or does not
};

/// This process's identity.
struct RankInfo {
  int rank = 0, world = 1;
  int local_rank = 0, local_size = 1;
  Authority authority = Authority::alone;
  std::string host;           ///< gethostname(), never $HOSTNAME
  std::vector<Claim> claims;  ///< of all sources that are present, in the order of authority
  /// The claims that differ from the identity, and why they do not count.
  std::vector<std::string> ignored;
};

/// A launch that cannot work. Every rank finds the same fault, so only rank 0 needs to print it.
class LaunchError : public InputError {
 public:
  using InputError::InputError;
};

/// Finds this process's identity: LOCKSTEP_RANK (or JOB_COMPLETION_INDEX) and LOCKSTEP_WORLD; else
/// under mpirun, srun, both or neither: OMPI_COMM_WORLD_*; else
/// SLURM_* when SLURM_STEP_ID is set (and does not belong to a batch or interactive shell); else
/// FLUX_*; else PALS_*; else PMI_*; else torchrun's RANK and WORLD_SIZE; else
/// PET_NODE_RANK and PET_NNODES; else alone. `mpi`, when
/// given, is compared with it and fills in what the authority does not say.
/// Throws InputError naming the variable and both values for junk, for a missing companion, for
/// rank >= world, and when the launcher and MPI contradict each other (with the line to change;
/// `types` says what srun offers).
RankInfo identify(const EnvLookup& env, const std::optional<MpiWorld>& mpi,
                  const SrunMpiTypes& types = {});

/// Whether a launcher of several ranks started this process, so that it must join a world.
bool launched(const EnvLookup& env);

/// A fault in the launch that is known before MPI_Init.
struct LaunchDoubt {
  bool certain = false;  ///< MPI_Init will end this process; else it may
  std::string text;      ///< what is wrong, and the line to write
};

/// Before MPI_Init: finds an srun that offers nothing that the MPI library speaks. Some libraries
/// then end the process inside MPI_Init, others make each rank a world of one. Finds, too, a step
/// whose ranks Slurm's PMIx may never connect.
std::optional<LaunchDoubt> doubt_launch(const EnvLookup& env, const MpiLibrary& library,
                                        const SrunMpiTypes& types);

}  // namespace lockstep::cluster
