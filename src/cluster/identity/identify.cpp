#include "lockstep/cluster/identity/identify.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "cluster/identity/claims.hpp"
#include "cluster/identity/remedy.hpp"
#include "lockstep/base/process.hpp"

namespace lockstep::cluster {
namespace {

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

EnvLookup process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (!value) return std::nullopt;
    return value;
  };
}

const char* to_string(Authority authority) {
  switch (authority) {
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
