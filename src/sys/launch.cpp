#include "lockstep/sys/launch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "lockstep/base/error.hpp"

namespace lockstep::sys {
namespace {

/// The variables in which one launcher says who a process is.
struct Names {
  const char *rank, *world, *local_rank, *local_size;
};

constexpr Names open_mpi_names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names slurm_names{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                            "SLURM_STEP_TASKS_PER_NODE"};

// Slurm numbers the steps that are no srun from here up: interactive shell, batch script, extern.
constexpr std::uint64_t first_shell_step = 0xfffffffa;

std::optional<std::uint64_t> parse(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::uint64_t whole_number(std::string_view name, std::string_view text, std::uint64_t limit) {
  const auto value = parse(text);
  require(value && *value <= limit,
          fmt::format("{}={}: not a whole number from 0 to {}. The launcher sets this variable: "
                      "unset it and start lockstep by mpirun or srun",
                      name, text, limit));
  return *value;
}

int count(std::string_view name, std::string_view text) {
  return static_cast<int>(whole_number(name, text, std::numeric_limits<int>::max()));
}

std::string needed(const EnvLookup& env, std::string_view name, std::string_view because) {
  const auto text = env(name);
  require(text.has_value(),
          fmt::format("{} is set but {} is missing: the launcher sets both or none. Unset the "
                      "first or start lockstep by mpirun or srun",
                      because, name));
  return *text;
}

struct TaskRun {
  std::uint64_t tasks, nodes;
};

/// "2(x3)": 2 tasks on each of 3 nodes; "2": on one.
std::optional<TaskRun> parse_run(std::string_view entry) {
  std::string_view nodes = "1";
  if (const std::size_t times = entry.find("(x"); times != entry.npos && entry.ends_with(')')) {
    nodes = entry.substr(times + 2, entry.size() - times - 3);
    entry = entry.substr(0, times);
  }
  const auto tasks = parse(entry), repeat = parse(nodes);
  constexpr std::uint64_t limit = std::numeric_limits<int>::max();
  if (!tasks || !repeat || *tasks > limit || *repeat > limit) return std::nullopt;
  return TaskRun{*tasks, *repeat};
}

/// Slurm's "2(x3),1" for nodes 0, 1, ...: the tasks of `node`.
int tasks_on_node(std::string_view name, std::string_view text, int node) {
  const std::uint64_t wanted = static_cast<std::uint64_t>(node);
  std::uint64_t nodes = 0, tasks = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto run = parse_run(text.substr(begin, end - begin));
    require(run.has_value(),
            fmt::format("{}={}: expected a form like 2(x3),1. srun sets this variable: start "
                        "lockstep by srun in a fresh shell",
                        name, text));
    if (nodes <= wanted) tasks = run->tasks;
    nodes += run->nodes;
    begin = end + 1;
  }
  require(wanted < nodes, fmt::format("SLURM_NODEID={} but {}={} has {} nodes: these do not belong "
                                      "to one step. Start lockstep by srun in a fresh shell",
                                      node, name, text, nodes));
  return static_cast<int>(tasks);
}

RankInfo judged(RankInfo info, const Names& names) {
  const auto below = [](const char* name, int value, const char* of_name, int of) {
    require(value < of, fmt::format("{}={} is not below {}={}: these do not belong to one launch. "
                                    "Unset both or start lockstep by mpirun or srun",
                                    name, value, of_name, of));
  };
  below(names.rank, info.rank, names.world, info.world);
  below(names.local_rank, info.local_rank, names.local_size, info.local_size);
  require(info.local_size <= info.world,
          fmt::format("{}={} is more than {}={}: these do not belong to one launch. Unset both or "
                      "start lockstep by mpirun or srun",
                      names.local_size, info.local_size, names.world, info.world));
  return info;
}

bool from_open_mpi(const EnvLookup& env) {
  return env(open_mpi_names.rank) || env(open_mpi_names.world) || env(open_mpi_names.local_rank) ||
         env(open_mpi_names.local_size);
}

/// Inside a step that srun started: not in a batch script, nor in an interactive step's shell.
bool from_slurm(const EnvLookup& env) {
  const auto step = env("SLURM_STEP_ID");
  return step && whole_number("SLURM_STEP_ID", *step, std::numeric_limits<std::uint32_t>::max()) <
                     first_shell_step;
}

RankInfo read_open_mpi(const EnvLookup& env) {
  const Names& names = open_mpi_names;
  const char* present = env(names.rank) ? names.rank : "another OMPI_COMM_WORLD_* variable";
  const auto read = [&](const char* name) { return count(name, needed(env, name, present)); };
  RankInfo info;
  info.authority = Authority::open_mpi;
  info.rank = read(names.rank);
  info.world = read(names.world);
  info.local_rank = read(names.local_rank);
  info.local_size = read(names.local_size);
  return judged(info, names);
}

RankInfo read_slurm(const EnvLookup& env) {
  const Names& names = slurm_names;
  const auto text = [&](const char* name) { return needed(env, name, "SLURM_STEP_ID"); };
  RankInfo info;
  info.authority = Authority::slurm;
  info.rank = count(names.rank, text(names.rank));
  info.world = count(names.world, text(names.world));
  info.local_rank = count(names.local_rank, text(names.local_rank));
  const int node = count("SLURM_NODEID", text("SLURM_NODEID"));
  const std::string tasks = text(names.local_size);
  info.local_size = tasks_on_node(names.local_size, tasks, node);
  return judged(info, names);
}

/// What the variables that lost against the authority say, with the reason.
std::vector<std::string> ignored_claims(const EnvLookup& env, const RankInfo& info) {
  std::vector<std::string> ignored;
  if (const auto procid = env("SLURM_PROCID"); procid && info.authority != Authority::slurm) {
    const bool task = env("SLURM_STEP_ID").has_value();
    ignored.push_back(fmt::format(
        "SLURM_PROCID={}, SLURM_NTASKS={}: {}", *procid, env("SLURM_NTASKS").value_or("(not set)"),
        info.authority != Authority::open_mpi
            ? "they belong to a shell or batch script, in which srun or mpirun was not used"
        : task ? "they describe the daemon through which mpirun started this rank, or an outer step"
               : "they describe the batch script that called mpirun, the same for all its ranks"));
  }
  for (const char* name : {"PMIX_RANK", "PMI_RANK"}) {
    const auto said = env(name);
    if (said && *said != std::to_string(info.rank))
      ignored.push_back(
          fmt::format("{}={}: {} says rank {}", name, *said, to_string(info.authority), info.rank));
  }
  return ignored;
}

std::string remedy(const EnvLookup& env, const RankInfo& info, const MpiWorld& mpi) {
  if (info.authority == Authority::slurm)
    return mpi.world == 1
               ? fmt::format(
                     "srun did not connect the tasks to MPI (--mpi={}): use srun "
                     "--mpi=pmix (srun --mpi=list shows what there is), or mpirun "
                     "inside the job",
                     env("SLURM_MPI_TYPE").value_or("none"))
               : "the SLURM_* variables belong to another step: start lockstep by srun or mpirun "
                 "in a fresh shell";
  return mpi.world == 1 ? "either mpirun belongs to another MPI than the one that lockstep is "
                          "linked with (use that one's mpirun), or the variables were left over "
                          "from an earlier mpirun (unset OMPI_COMM_WORLD_*, or sbatch "
                          "--export=NONE)"
                        : "the variables were left over from an earlier mpirun: unset "
                          "OMPI_COMM_WORLD_* (or sbatch --export=NONE)";
}

/// Local ranks may differ: a launcher may number them in the order in which it placed them, MPI's
/// follow the ranks. Either names each rank of the node once.
void agree_with_mpi(const EnvLookup& env, const RankInfo& info, const MpiWorld& mpi) {
  const Names& names = info.authority == Authority::slurm ? slurm_names : open_mpi_names;
  const auto same = [&](const char* name, int said, const char* what, int real) {
    require(said == real, fmt::format("{} says {} but MPI {} {}: {}", name, said, what, real,
                                      remedy(env, info, mpi)));
  };
  same(names.world, info.world, "has a world of", mpi.world);
  same(names.rank, info.rank, "has rank", mpi.rank);
  same(names.local_size, info.local_size, "counts the ranks of this node as", mpi.local_size);
}

std::string host_name() {
  char name[256] = {};
  check(gethostname(name, sizeof name - 1) == 0, "gethostname");
  return name;
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
    case Authority::mpi:
      return "MPI";
    case Authority::alone:
      return "nobody: a process alone";
  }
  throw Error("an Authority that does not exist");
}

RankInfo identify(const EnvLookup& env, const std::optional<MpiWorld>& mpi) {
  RankInfo info;
  if (from_open_mpi(env))
    info = read_open_mpi(env);
  else if (from_slurm(env))
    info = read_slurm(env);
  if (mpi && info.authority != Authority::alone) {
    agree_with_mpi(env, info, *mpi);
  } else if (mpi && mpi->world > 1) {
    info.authority = Authority::mpi;
    info.rank = mpi->rank;
    info.world = mpi->world;
    info.local_rank = mpi->local_rank;
    info.local_size = mpi->local_size;
  }
  info.host = host_name();
  info.ignored = ignored_claims(env, info);
  return info;
}

bool launched(const EnvLookup& env) {
  return from_open_mpi(env) || from_slurm(env) || env("PMIX_RANK") || env("PMI_RANK");
}

std::optional<std::string> launch_warning(const EnvLookup& env) {
  // Open MPI takes any process with SLURM_STEP_ID for one that srun started for it, and ends it
  // inside MPI_Init when no PMIx server answers: with --mpi=none and pmi2, and in srun's shells.
  if (!env("SLURM_STEP_ID") || from_open_mpi(env) || env("PMIX_RANK") || env("PMIX_NAMESPACE"))
    return std::nullopt;
  return fmt::format(
      "this process stands in a Slurm step (SLURM_STEP_ID={}) that offers MPI no PMIx (--mpi={}). "
      "If MPI_Init ends the program now: use srun --mpi=pmix (srun --mpi=list shows what there "
      "is), or mpirun; in a shell inside srun, mpirun -n 1",
      *env("SLURM_STEP_ID"), env("SLURM_MPI_TYPE").value_or("none"));
}

}  // namespace lockstep::sys
