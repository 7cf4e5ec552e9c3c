#include "cluster/identity/launchers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lockstep/base/text/numbers.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"

namespace lockstep::cluster {
namespace {

constexpr Alternatives no_others{"", ""};

constexpr Launcher all_launchers[] = {
    {Authority::declared,
     {"LOCKSTEP_RANK", "JOB_COMPLETION_INDEX"},
     {"LOCKSTEP_WORLD", ""},
     no_others,
     no_others,
     ""},
    {Authority::open_mpi,
     {"OMPI_COMM_WORLD_RANK", ""},
     {"OMPI_COMM_WORLD_SIZE", ""},
     {"OMPI_COMM_WORLD_LOCAL_RANK", ""},
     {"OMPI_COMM_WORLD_LOCAL_SIZE", ""},
     "PMIX_HOSTNAME"},
    {Authority::slurm,
     {"SLURM_PROCID", ""},
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     {"SLURM_LOCALID", ""},
     {"SLURM_STEP_TASKS_PER_NODE", ""},
     "SLURMD_NODENAME"},
    {Authority::flux,
     {"FLUX_TASK_RANK", ""},
     {"FLUX_JOB_SIZE", ""},
     {"FLUX_TASK_LOCAL_ID", ""},
     no_others,
     ""},
    {Authority::pals,
     {"PALS_RANKID", ""},
     {"PMI_SIZE", ""},
     {"PALS_LOCAL_RANKID", ""},
     {"PALS_LOCAL_SIZE", ""},
     "PALS_NODEID"},
    {Authority::pmi,
     {"PMI_RANK", ""},
     {"PMI_SIZE", ""},
     {"PMI_LOCAL_RANK", "MPI_LOCALRANKID"},
     {"PMI_LOCAL_SIZE", "MPI_LOCALNRANKS"},
     ""},
    {Authority::pmix, {"PMIX_RANK", ""}, no_others, no_others, no_others, "PMIX_HOSTNAME"},
    {Authority::torchrun,
     {"RANK", ""},
     {"WORLD_SIZE", ""},
     {"LOCAL_RANK", ""},
     {"LOCAL_WORLD_SIZE", ""},
     "GROUP_RANK"},
    {Authority::trainer, {"PET_NODE_RANK", ""}, {"PET_NNODES", ""}, no_others, no_others, ""},
};

// Steps that srun did not start have numbers from here up: interactive shell, batch script, extern.
constexpr std::uint64_t first_shell_step = 0xfffffffa;

constexpr std::uint64_t max_count = std::numeric_limits<int>::max();

std::uint64_t required_number(std::string_view name, std::string_view text, std::uint64_t limit) {
  const auto value = whole_number<std::uint64_t>(text);
  require(value && *value <= limit,
          fmt::format("{}={}: not a whole number from 0 to {}. The launcher sets this variable: "
                      "unset it and start lockstep by mpirun or srun",
                      name, text, limit));
  return *value;
}

/// "2(x3)": 2 tasks on each of 3 nodes; "2": on one.
struct TaskRun {
  std::uint64_t tasks, nodes;
};

std::optional<TaskRun> parse_run(std::string_view entry) {
  std::string_view nodes = "1";
  if (const std::size_t times = entry.find("(x"); times != entry.npos && entry.ends_with(')')) {
    nodes = entry.substr(times + 2, entry.size() - times - 3);
    entry = entry.substr(0, times);
  }
  const auto tasks = whole_number<int>(entry), repeat = whole_number<int>(nodes);
  if (!tasks || !repeat) return std::nullopt;
  return TaskRun{static_cast<std::uint64_t>(*tasks), static_cast<std::uint64_t>(*repeat)};
}

int tasks_on_node(std::string_view name, std::string_view text, const EnvLookup& env) {
  const auto node = env("SLURM_NODEID");
  require(node.has_value(), fmt::format("{} is set but SLURM_NODEID is missing: srun sets both or "
                                        "none. Start lockstep by srun in a fresh shell",
                                        name));
  const std::uint64_t wanted = required_number("SLURM_NODEID", *node, max_count);
  const std::vector<int> tasks = tasks_per_node(text);
  require(!tasks.empty(), fmt::format("{}={}: expected a form like 2(x3),1. srun sets this "
                                      "variable: start lockstep by srun in a fresh shell",
                                      name, text));
  require(wanted < tasks.size(),
          fmt::format("SLURM_NODEID={} but {}={} has {} nodes: these do not belong to one step. "
                      "Start lockstep by srun in a fresh shell",
                      *node, name, text, tasks.size()));
  return tasks[wanted];
}

bool is_set(const EnvLookup& env, const Alternatives& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return *name && env(name); });
}

/// Open MPI and Slurm set all their variables or none; other launchers may set no local ones.
bool needs_all(const Launcher& launcher) {
  return launcher.source == Authority::open_mpi || launcher.source == Authority::slurm;
}

std::optional<int> read_number(const EnvLookup& env, const Launcher& launcher,
                               const Alternatives& names, bool needed) {
  const char* name = name_of(env, names);
  const auto text = *name ? env(name) : std::nullopt;
  if (!text) {
    const bool from_slurm = launcher.source == Authority::slurm;
    const char* present = from_slurm                   ? "SLURM_STEP_ID"
                          : is_set(env, launcher.rank) ? launcher.rank[0]
                                                       : "another variable of this launcher";
    require(!needed, fmt::format("{} is set but {} is missing: the launcher sets both or none. "
                                 "Unset the first or start lockstep by mpirun or srun",
                                 present, names[0]));
    return std::nullopt;
  }
  if (std::string_view(name) == "SLURM_STEP_TASKS_PER_NODE") return tasks_on_node(name, *text, env);
  return static_cast<int>(required_number(name, *text, max_count));
}

void require_one_launch(const EnvLookup& env, const Launcher& launcher, const Claim& claim) {
  const auto refuse = [&](const Alternatives& names, int value, const char* relation,
                          const Alternatives& of, int limit) {
    throw InputError(
        fmt::format("{}={} is {} {}={}: these do not belong to one launch. Unset both "
                    "or start lockstep by mpirun or srun",
                    name_of(env, names), value, relation, name_of(env, of), limit));
  };
  if (claim.rank >= claim.world)
    refuse(launcher.rank, *claim.rank, "not below", launcher.world, *claim.world);
  if (!claim.local_size) return;
  if (claim.local_rank && claim.local_rank >= claim.local_size)
    refuse(launcher.local_rank, *claim.local_rank, "not below", launcher.local_size,
           *claim.local_size);
  if (claim.local_size > claim.world)
    refuse(launcher.local_size, *claim.local_size, "more than", launcher.world, *claim.world);
}

}  // namespace

std::vector<int> tasks_per_node(std::string_view text) {
  std::vector<int> tasks;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto run = parse_run(text.substr(begin, end - begin));
    if (!run || run->nodes > max_hosts - tasks.size()) return {};
    tasks.insert(tasks.end(), run->nodes, static_cast<int>(run->tasks));
    begin = end + 1;
  }
  return tasks;
}

std::span<const Launcher> launchers() { return all_launchers; }

const char* name_of(const EnvLookup& env, const Alternatives& names) {
  for (const char* name : names)
    if (*name && env(name)) return name;
  return names[0];
}

bool in_slurm_step(const EnvLookup& env) {
  const auto step = env("SLURM_STEP_ID");
  return step && required_number("SLURM_STEP_ID", *step,
                                 std::numeric_limits<std::uint32_t>::max()) < first_shell_step;
}

bool decides(const EnvLookup& env, const Launcher& launcher) {
  switch (launcher.source) {
    case Authority::open_mpi:
      return is_set(env, launcher.rank) || is_set(env, launcher.world) ||
             is_set(env, launcher.local_rank) || is_set(env, launcher.local_size);
    case Authority::slurm:
      return in_slurm_step(env);
    case Authority::declared:  // the index alone may be that of workers
      return env("LOCKSTEP_WORLD").value_or(env("LOCKSTEP_RANK") ? "" : "1") != "1";
    case Authority::trainer:
      return env("PET_NNODES").value_or("1") != "1";
    case Authority::torchrun:  // a world of one needs no joining, and these names are common
      return is_set(env, launcher.rank) && env("WORLD_SIZE").value_or("1") != "1";
    default:
      return is_set(env, launcher.rank) && is_set(env, launcher.world);
  }
}

Claim read_strictly(const EnvLookup& env, const Launcher& launcher) {
  const bool all = needs_all(launcher);
  Claim claim;
  claim.source = launcher.source;
  claim.rank = read_number(env, launcher, launcher.rank, true);
  // SLURM_NTASKS is the job's, and the job may have several steps.
  const Alternatives world =
      launcher.source == Authority::slurm ? Alternatives{launcher.world[0], ""} : launcher.world;
  claim.world = read_number(env, launcher, world, true);
  claim.local_rank = read_number(env, launcher, launcher.local_rank, all);
  claim.local_size = read_number(env, launcher, launcher.local_size, all);
  require_one_launch(env, launcher, claim);
  return claim;
}

std::optional<Claim> read_claim(const EnvLookup& env, const Launcher& launcher) {
  Claim claim;
  claim.source = launcher.source;
  const auto read = [&](const Alternatives& names, std::optional<int>& number) {
    const char* name = name_of(env, names);
    const auto text = *name ? env(name) : std::nullopt;
    if (!text) return;
    claim.said += fmt::format("{}{}={}", claim.said.empty() ? "" : ", ", name, *text);
    try {
      number = read_number(env, launcher, names, false);
    } catch (const InputError&) {
      number.reset();  // junk in a variable that may not count: shown, but not used
    }
  };
  read(launcher.rank, claim.rank);
  if (claim.said.empty() && launcher.source != Authority::open_mpi) return std::nullopt;
  read(launcher.world, claim.world);
  read(launcher.local_rank, claim.local_rank);
  read(launcher.local_size, claim.local_size);
  if (claim.said.empty()) return std::nullopt;
  if (*launcher.node) claim.node = env(launcher.node).value_or("");
  return claim;
}

}  // namespace lockstep::cluster
