#include "cluster/identity/remedy.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/process.hpp"
#include "lockstep/base/text/join.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

std::string asked_type(const EnvLookup& env) { return env("SLURM_MPI_TYPE").value_or("none"); }

std::string or_dots(const EnvLookup& env, std::string_view name) { return env(name).value_or("N"); }

/// The line to write instead of an srun that does not fit MPI, from what this srun offers.
std::string srun_line(const EnvLookup& env, const SrunMpiTypes& types) {
  const std::vector<std::string> offered = types ? types() : std::vector<std::string>();
  const auto pmix = std::find_if(offered.begin(), offered.end(),
                                 [](const std::string& type) { return type.starts_with("pmix"); });
  const std::string nodes = or_dots(env, "SLURM_STEP_NUM_NODES");
  const std::string tasks = or_dots(env, "SLURM_STEP_NUM_TASKS");
  if (offered.empty())
    return fmt::format(
        "write srun --mpi=pmix -N {} -n {} lockstep ... (srun --mpi=list shows what there is), or "
        "in the job mpirun -np {} lockstep ...",
        nodes, tasks, tasks);
  const std::string offer = fmt::format("this srun offers {}", join(offered, ", "));
  if (pmix == offered.end())
    return fmt::format("{}, and no PMIx: write in the job mpirun -np {} lockstep ...", offer,
                       tasks);
  return fmt::format("{}: write srun --mpi={} -N {} -n {} lockstep ...", offer, *pmix, nodes,
                     tasks);
}

/// The names in a line of `srun --mpi=list`. Its headings contain blanks.
void add_types(std::string_view line, std::vector<std::string>& types) {
  constexpr std::string_view specific = "available:";
  if (const auto at = line.find(specific); at != line.npos)
    line.remove_prefix(at + specific.size());
  line = trimmed(line);
  if (!line.empty() && line.find_first_of(" .:") == line.npos) types.emplace_back(line);
}

}  // namespace

std::vector<std::string> srun_mpi_types() {
  // Some versions answer on the error stream, others on the output stream.
  std::vector<std::string> types;
  for (const std::string& line : answer_of("timeout 5 srun --mpi=list 2>&1"))
    add_types(line, types);
  return types;
}

std::string remedy(const EnvLookup& env, const Claim& claim, const MpiWorld& mpi,
                   const SrunMpiTypes& types) {
  const bool apart = mpi.world == 1 && claim.world > 1;
  const int world = claim.world.value_or(1);
  switch (claim.source) {
    case Authority::slurm:
      return apart ? fmt::format("srun did not connect the tasks to MPI (--mpi={}); {}",
                                 asked_type(env), srun_line(env, types))
                   : "the SLURM_* variables belong to another step: start lockstep by srun or "
                     "mpirun in a fresh shell";
    case Authority::open_mpi:
      return apart ? "either mpirun belongs to another MPI than the one that lockstep is linked "
                     "with (use that one's mpirun), or the variables were left over from an "
                     "earlier mpirun (unset ${!OMPI_*} ${!PMIX_*}, or sbatch --export=NONE)"
                   : "the variables were left over from an earlier mpirun: unset ${!OMPI_*} "
                     "${!PMIX_*} (or sbatch --export=NONE)";
    case Authority::flux:
      return fmt::format(
          "flux did not connect the tasks to MPI: write flux run -o pmi=pmix -n {} "
          "lockstep ..., or unset ${{!FLUX_*}}",
          world);
    case Authority::pals:
      return fmt::format(
          "mpiexec did not connect the ranks to MPI: write mpiexec --pmi=pmix -n {} "
          "lockstep ..., or unset ${{!PALS_*}} ${{!PMI_*}}",
          world);
    case Authority::torchrun:
      return fmt::format(
          "torchrun starts no MPI: write mpirun -np {} lockstep ..., or unset RANK "
          "WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE",
          world);
    default:
      return fmt::format(
          "the launcher belongs to another MPI than the one that lockstep is linked "
          "with: write mpirun -np {} lockstep ... with that one's mpirun, or unset "
          "${{!PMI_*}}",
          world);
  }
}

std::optional<LaunchDoubt> doubt_launch(const EnvLookup& env, const MpiLibrary& library,
                                        const SrunMpiTypes& types) {
  // Open MPI assumes that srun started every process with SLURM_STEP_ID for it. It ends the process
  // inside MPI_Init when no PMIx server answers: with --mpi=none and pmi2, and in srun's shells.
  if (!env("SLURM_STEP_ID") || env("OMPI_COMM_WORLD_RANK") || env("PMIX_RANK") ||
      env("PMIX_NAMESPACE"))
    return std::nullopt;
  // Other libraries, and an Open MPI that may speak PMI, at worst make worlds of one rank, which
  // identify() finds after MPI_Init.
  if (!library.needs_pmix && (!library.name.starts_with("Open MPI") || env("PMI_RANK")))
    return std::nullopt;
  LaunchDoubt doubt;
  doubt.certain = library.needs_pmix && env("SLURM_STEPID") && env("SLURM_NODELIST");
  doubt.text = fmt::format(
      "this process runs in a Slurm step that offers MPI no PMIx (srun --mpi={}), and {} {}: {}; "
      "in a shell inside srun, mpirun -n 1 lockstep ...",
      asked_type(env), library.name,
      doubt.certain ? "cannot join a world under srun without it" : "may need it",
      srun_line(env, types));
  return doubt;
}

}  // namespace lockstep::cluster
