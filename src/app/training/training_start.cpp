#include "app/training/training_start.hpp"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "app/start/check_nodes.hpp"
#include "app/start/traps_here.hpp"
#include "lockstep/base/build_id.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"
#include "lockstep/cluster/identity/walltime.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/agreement.hpp"
#include "lockstep/train/ending/stop_signal.hpp"
#include "lockstep/train/run_data.hpp"

namespace lockstep::app {
namespace {

/// Call it before MPI starts: it starts a process, which some network drivers forbid later.
train::Allocation look_at_allocation() {
  const cluster::EnvLookup env = cluster::process_environment();
  const cluster::RankInfo self = cluster::identify(env, std::nullopt);
  train::Allocation allocation{
      .host = self.host, .job = cluster::slurm_job(env), .restarts = 0, .end_s = std::nullopt};
  if (self.rank != 0) return allocation;
  allocation.restarts = whole_number<int>(env("SLURM_RESTART_COUNT").value_or("0")).value_or(0);
  if (allocation.restarts >= 2)  // a start that Slurm preempted is no failure
    for (const auto& start : cluster::ask_sacct(allocation.job, {"State"}))
      if (start[0].starts_with("PREEMPTED")) --allocation.restarts;
  if (const auto left_s = cluster::allocation_left_s(env)) allocation.end_s = now_s() + *left_s;
  allocation.patience_s = cluster::mpirun_patience_s(env);
  return allocation;
}

/// Different builds may train different bits, and do not know each other's messages. Collective.
void require_same_build(Launch& launch, bool may_differ) {
  const std::string builds = comm::disagreement(*launch.control, build_id(), "build");
  if (builds.empty()) return;
  const std::string what = fmt::format("the ranks run different builds of lockstep: {}", builds);
  require(may_differ, what + ". Install one build on all nodes, or give --allow-different-builds");
  if (launch.rank.rank == 0) log::warn(what + "; the result may differ from that of one build");
}

/// Where the user's programs keep what they can find out again; empty without a home.
std::string algorithm_cache() {
  const cluster::EnvLookup env = cluster::process_environment();
  const std::string home = env("HOME").value_or("");
  const std::string fallback = home.empty() ? "" : home + "/.cache";
  const std::string caches = env("XDG_CACHE_HOME").value_or(fallback);
  return caches.empty() ? "" : caches + "/lockstep/convolutions.json";
}

/// The findings as JSON; empty if not asked for: then only certain traps are said.
std::string run_preflight(Launch& launch, const config::Config& config) {
  if (!config.preflight.check && !config.preflight.require) {
    warn_of_traps(launch, cluster::TrapScope::certain);
    return "";
  }
  return check_nodes(launch, {.directory = std::filesystem::path(config.out).parent_path().string(),
                              .paths = {config.data.train, config.data.val},
                              .require = config.preflight.require})
      .json;
}

/// As one could type it again.
std::string command_line(const Launch& launch) {
  std::vector<std::string> words;
  for (int i = 0; i < launch.argc; ++i) words.push_back(shell_word(launch.argv[i]));
  return join(words, " ");
}

/// How fast the clock backend is to be; empty for the others.
std::optional<backend::Pace> pace_of(const config::Config& config) {
  if (config.backend != config::BackendChoice::clock) return std::nullopt;
  if (!config.clock.profile.empty())
    return backend::read_pace(config.clock.profile, config.clock.efficiency);
  return backend::LinePace{config.clock.row_ms, config.clock.step_ms};
}

void say_recipe(const config::Recipe& recipe, const config::Config& config) {
  const config::RecipeNotes notes = config::recipe_notes(recipe, config);
  log::info(notes.sets);
  if (!notes.other_batch.empty()) log::warn(notes.other_batch);
}

}  // namespace

void require_data(const config::Config& config) {
  require(!config.data.train.empty(),
          "data.train is missing: give --data.train DIR, a folder of shards ('lockstep pack' makes "
          "them)");
}

TrainingStart start_training(Launch& launch, config::Config config,
                             const std::optional<config::Recipe>& recipe, TrainedRows rows) {
  const double started_s = now_s();
  // A signal may come before the other ranks.
  train::catch_stop_signals(rank_by_environment().rank == 0);
  const train::Allocation allocation = look_at_allocation();
  launch.silence_s = config.liveness.timeout_s;
  launch.start(config.comm.deadline_s);
  require_same_build(launch, config.comm.allow_different_builds);
  // Again, because MPI's start installs its own handlers.
  train::catch_stop_signals(launch.rank.rank == 0);
  const std::string backend = decide_backend(launch, choice_name(config.backend));
  const comm::Grid grid(launch.rank.rank, config::grid_shape(config, launch.rank.world));
  if (rows == TrainedRows::of_data_set) require_data(config);
  const config::BackendChoice asked = config.backend;
  config.backend = parse_choice<config::BackendChoice>(backend, "backend");  // what it can use
  config::resolve(config, grid.ranks());
  config.backend = asked;
  if (recipe && launch.rank.rank == 0) say_recipe(*recipe, config);
  const std::string preflight = run_preflight(launch, config);
  TrainingStart start;
  start.compute = prepare_compute(launch, {.backend = backend,
                                           .threads = config.threads,
                                           .require_binding = config.binding.require,
                                           .share_gpu = config.comm.share_gpu,
                                           .pace = pace_of(config)});
  const NcclLog nccl(backend == "cuda" && launch.rank.rank == 0 ? "INIT,NET" : "");
  start.communicator = connect(launch, start.compute,
                               {.deadline_s = config.comm.deadline_s,
                                .share_gpu = config.comm.share_gpu,
                                .deterministic = config.deterministic});
  say_nccl_network(launch, nccl);
  start.ranges = comm::make_phase_ranges(launch.activity);
  start.spec = {.config = std::move(config),
                .bind_worker = start.compute.bind_worker,
                .spare_cores = start.compute.spare_cores,
                .binding_report = start.compute.binding_report,
                .preflight = preflight,
                .algorithm_cache = algorithm_cache(),
                .command = command_line(launch),
                .started_s = started_s,
                .allocation = allocation,
                .grid = grid,
                .nodes = launch.nodes,
                .cores = start.compute.cores,
                .gpu_pci_bus_id = start.compute.gpu_pci_bus_id,
                .heartbeat = launch.heartbeat.get()};
  if (rows == TrainedRows::synthetic)
    start.spec.synthetic = train::synthetic_rows(start.spec.config);
  return start;
}

}  // namespace lockstep::app
