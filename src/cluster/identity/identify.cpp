#include "lockstep/cluster/identity/identify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include <unistd.h>

#include "cluster/identity/launchers.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"

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

/// Slurm's PMIx (17.11 to 26.05) compares a node's place in the job with that in the step, so of
/// two nodes neither may connect to the other, and asks the wrong node for what a rank offers.
/// Empty where the step's nodes are the job's first ones, or not known. Of a heterogeneous step the
/// variables say a part.
std::string confused_places(const EnvLookup& env) {
  if (env("SLURM_HET_SIZE")) return {};
  const std::string in_step = env("SLURM_STEP_NODELIST").value_or("");
  const std::string in_job = env("SLURM_JOB_NODELIST").value_or("");
  try {
    const std::vector<std::string> step = expand_hosts(in_step), job = expand_hosts(in_job);
    if (step.size() < 2 || job.empty()) return {};
    if (step.size() <= job.size() && std::equal(step.begin(), step.end(), job.begin())) return {};
  } catch (const InputError&) {
    return {};
  }
  return fmt::format(
      "MPI's start may wait for ever: this step's nodes ({}) are not the first ones of its job "
      "({}), and Slurm's PMIx confuses their places; start it by SLURM_JOB_NODELIST='{}' srun ...",
      in_step, in_job, in_step);
}

/// The names in a line of `srun --mpi=list`. Its headings contain blanks.
void add_types(std::string_view line, std::vector<std::string>& types) {
  constexpr std::string_view specific = "available:";
  if (const auto at = line.find(specific); at != line.npos)
    line.remove_prefix(at + specific.size());
  line = trimmed(line);
  if (!line.empty() && line.find_first_of(" .:") == line.npos) types.emplace_back(line);
}

/// What to change when a launcher said `claim` and MPI says otherwise.
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

/// Slurm's variables are set in every process of a job, whatever started it.
std::string why_not_slurm(const EnvLookup& env, const RankInfo& info) {
  if (info.authority == Authority::mpi || info.authority == Authority::alone)
    return "they belong to a shell or batch script, in which srun or mpirun was not used";
  if (env("SLURM_STEP_ID"))
    return "they describe the daemon through which the launcher started this rank, or an outer "
           "step";
  return "they describe the batch script that called mpirun, the same for all its ranks";
}

/// Why a launcher's claim does not count.
std::string why_not(const EnvLookup& env, const RankInfo& info, const Claim& claim, bool differs) {
  if (claim.source == Authority::slurm) return why_not_slurm(env, info);
  if (!differs) return fmt::format("agrees with {}", to_string(info.authority));
  if (info.authority != Authority::alone)
    return fmt::format("{} says rank {} of {}", to_string(info.authority), info.rank, info.world);
  return claim.world ? "a world of one rank is a process alone"
                     : "it names no world, and MPI has none of several ranks";
}

bool differs(const std::optional<int>& said, int taken) { return said && *said != taken; }

/// Lists all claims, and whether each counts.
void judge_claims(const EnvLookup& env, const std::optional<MpiWorld>& mpi, RankInfo& info) {
  for (const Launcher& launcher : launchers()) {
    std::optional<Claim> claim = read_claim(env, launcher);
    if (!claim) continue;
    claim->taken = claim->source == info.authority;
    const bool other = differs(claim->rank, info.rank) || differs(claim->world, info.world) ||
                       differs(claim->local_rank, info.local_rank) ||
                       differs(claim->local_size, info.local_size);
    claim->why = claim->taken ? "the launcher says so" : why_not(env, info, *claim, other);
    if (!claim->taken && (other || claim->source == Authority::slurm))
      info.ignored.push_back(claim->said + ": " + claim->why);
    info.claims.push_back(std::move(*claim));
  }
  if (!mpi) return;
  Claim claim;
  claim.source = Authority::mpi;
  claim.rank = mpi->rank;
  claim.world = mpi->world;
  claim.local_rank = mpi->local_rank;
  claim.local_size = mpi->local_size;
  claim.said = "MPI_COMM_WORLD";
  claim.taken = info.authority == Authority::mpi;
  claim.why = claim.taken ? "no launcher that lockstep knows said more"
                          : fmt::format("agrees with {}", to_string(info.authority));
  info.claims.push_back(std::move(claim));
}

/// Local ranks may differ: a launcher may number them in the order in which it placed them, MPI
/// numbers them in the order of the ranks. Both number each rank of the node once.
void agree_with_mpi(const EnvLookup& env, const Launcher& launcher, const Claim& claim,
                    const MpiWorld& mpi, const SrunMpiTypes& types) {
  const auto same = [&](const Alternatives& names, std::optional<int> said, const char* what,
                        int real) {
    if (!said || *said == real) return;
    const std::string text = fmt::format("{} says {} but MPI {} {}: {}", name_of(env, names), *said,
                                         what, real, remedy(env, claim, mpi, types));
    if (claim.source == Authority::slurm && mpi.world == 1) throw LaunchError(text);
    throw InputError(text);
  };
  same(launcher.world, claim.world, "has a world of", mpi.world);
  same(launcher.rank, claim.rank, "has rank", mpi.rank);
  const bool of_machine = claim.local_size && *claim.local_size > mpi.local_size &&
                          *claim.local_size <= mpi.machine_size;
  if (!of_machine)
    same(launcher.local_size, claim.local_size, "counts the ranks of this node as", mpi.local_size);
}

/// The launcher that started this process: the first that says so. Only Slurm can be the outer one
/// of two: Hydra and Flux start their daemons by srun, and the ranks then see its variables in
/// addition to their own. Under srun alone the others repeat what Slurm says.
const Launcher* find_authority(const EnvLookup& env) {
  const auto known = launchers();
  const auto first = std::find_if(known.begin(), known.end(),
                                  [&](const Launcher& launcher) { return decides(env, launcher); });
  if (first == known.end()) return nullptr;
  if (first->source != Authority::slurm) return &*first;
  const Claim outer = read_strictly(env, *first);
  for (const Launcher& launcher :
       known.subspan(static_cast<std::size_t>(first - known.begin()) + 1)) {
    if (launcher.source == Authority::torchrun || !decides(env, launcher)) continue;
    const Claim inner = read_strictly(env, launcher);
    if (inner.rank != outer.rank || inner.world != outer.world) return &launcher;
  }
  return &*first;
}

void take(const Claim& claim, const std::optional<MpiWorld>& mpi, RankInfo& info) {
  const MpiWorld otherwise = mpi.value_or(MpiWorld{});
  info.authority = claim.source;
  info.rank = *claim.rank;
  info.world = *claim.world;
  info.local_rank = claim.local_rank.value_or(otherwise.local_rank);
  info.local_size = claim.local_size.value_or(otherwise.local_size);
}

}  // namespace

std::vector<std::string> srun_mpi_types() {
  // Some versions answer on the error stream, others on the output stream.
  std::vector<std::string> types;
  for (const std::string& line : answer_of("timeout 5 srun --mpi=list 2>&1"))
    add_types(line, types);
  return types;
}

std::optional<SlurmVersion> read_slurm_version(std::string_view text) {
  if (!text.starts_with("slurm")) return std::nullopt;
  text.remove_prefix(std::min(text.find(' '), text.size() - 1) + 1);
  const std::size_t point = text.find('.');
  if (point == text.npos) return std::nullopt;
  const auto year = whole_number<int>(text.substr(0, point));
  text.remove_prefix(point + 1);
  const auto month = whole_number<int>(text.substr(0, text.find_first_not_of("0123456789")));
  if (!year || !month) return std::nullopt;
  return SlurmVersion{*year, *month};
}

std::optional<SlurmVersion> srun_version() {
  for (const std::string& line : answer_of("timeout 5 srun --version 2>/dev/null"))
    if (const auto version = read_slurm_version(line)) return version;
  return std::nullopt;
}

std::optional<LaunchDoubt> doubt_launch(const EnvLookup& env, const MpiLibrary& library,
                                        const SrunMpiTypes& types) {
  if (library.is_none)
    return LaunchDoubt{true,
                       "this program was built without MPI, so its ranks can meet only where srun "
                       "starts them: start it with srun, or build it with MPI"};
  // Open MPI assumes that srun started every process with SLURM_STEP_ID for it. It ends the process
  // inside MPI_Init when no PMIx server answers: with --mpi=none and pmi2, and in srun's shells.
  if (!env("SLURM_STEP_ID") || env("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  if (env("PMIX_RANK") || env("PMIX_NAMESPACE")) {
    const std::string confused = confused_places(env);
    return confused.empty() ? std::nullopt : std::optional(LaunchDoubt{false, confused});
  }
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

EnvLookup process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (!value) return std::nullopt;
    return value;
  };
}

Variables process_variables() {
  Variables variables;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text(*one);
    const std::size_t equals = text.find('=');
    if (equals != text.npos)
      variables[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  return variables;
}

const char* to_string(Authority authority) {
  switch (authority) {
    case Authority::declared:
      return "LOCKSTEP_WORLD";
    case Authority::trainer:
      return "Kubeflow Trainer";
    case Authority::open_mpi:
      return "Open MPI";
    case Authority::slurm:
      return "Slurm";
    case Authority::flux:
      return "Flux";
    case Authority::pals:
      return "PALS";
    case Authority::pmi:
      return "PMI";
    case Authority::pmix:
      return "PMIx";
    case Authority::torchrun:
      return "torchrun";
    case Authority::mpi:
      return "MPI";
    case Authority::alone:
      return "no one: a process alone";
  }
  throw Error("an Authority that does not exist");
}

RankInfo identify(const EnvLookup& env, const std::optional<MpiWorld>& mpi,
                  const SrunMpiTypes& types) {
  RankInfo info;
  info.host = host_name();
  if (const Launcher* authority = find_authority(env)) {
    const Claim claim = read_strictly(env, *authority);
    if (mpi) agree_with_mpi(env, *authority, claim, *mpi, types);
    take(claim, mpi, info);
  } else if (mpi && mpi->world > 1) {
    info.authority = Authority::mpi;
    info.rank = mpi->rank;
    info.world = mpi->world;
    info.local_rank = mpi->local_rank;
    info.local_size = mpi->local_size;
  }
  judge_claims(env, mpi, info);
  return info;
}

bool launched(const EnvLookup& env) {
  const auto known = launchers();
  return env("PMIX_RANK") || env("PMI_RANK") ||
         std::any_of(known.begin(), known.end(),
                     [&](const Launcher& launcher) { return decides(env, launcher); });
}

}  // namespace lockstep::cluster
