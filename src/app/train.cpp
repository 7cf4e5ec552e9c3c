#include <filesystem>

#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "app/start/check_nodes.hpp"
#include "app/start/compute.hpp"
#include "app/status.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/join.hpp"
#include "lockstep/base/numbers.hpp"
#include "lockstep/cluster/walltime.hpp"
#include "lockstep/train/run.hpp"
#include "lockstep/train/stop_signal.hpp"

namespace lockstep::app {
namespace {

/// Call it before MPI starts: it starts a process, which some network drivers forbid later.
train::Allocation look_at_allocation() {
  const cluster::EnvLookup env = cluster::process_environment();
  const cluster::RankInfo self = cluster::identify(env, std::nullopt);
  train::Allocation allocation{.host = self.host,
                               .job = env("SLURM_JOB_ID").value_or(""),
                               .restarts = 0,
                               .end_s = std::nullopt};
  if (self.rank != 0) return allocation;
  allocation.restarts = whole_number<int>(env("SLURM_RESTART_COUNT").value_or("0")).value_or(0);
  if (const auto left_s = cluster::allocation_left_s(env)) allocation.end_s = now_s() + *left_s;
  return allocation;
}

/// The findings as JSON; empty if not asked for.
std::string run_preflight(Launch& launch, const config::Config& config) {
  if (!config.preflight.check && !config.preflight.require) return "";
  return check_nodes(launch, {.directory = std::filesystem::path(config.out).parent_path().string(),
                              .paths = {config.data.train, config.data.val},
                              .require = config.preflight.require})
      .json;
}

/// As one could type it again.
std::string command_line(const Launch& launch) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  std::vector<std::string> words(launch.argv, launch.argv + launch.argc);
  for (std::string& word : words) {
    if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) continue;
    for (std::size_t at = 0; (at = word.find('\'', at)) != std::string::npos; at += 4)
      word.replace(at, 1, "'\\''");
    word = "'" + word + "'";
  }
  return join(words, " ");
}

/// How fast the clock backend is to be; empty for the others.
std::optional<backend::Pace> pace_of(const config::Config& config) {
  if (config.backend != config::BackendChoice::clock) return std::nullopt;
  if (!config.clock.profile.empty())
    return backend::read_pace(config.clock.profile, config.clock.efficiency);
  return backend::LinePace{config.clock.row_ms, config.clock.step_ms};
}

int train_model(Launch& launch, config::Config config) {
  const double started_s = now_s();
  train::catch_stop_signals();  // a signal may come before the other ranks
  const train::Allocation allocation = look_at_allocation();
  launch.silence_s = config.liveness.timeout_s;
  launch.start(config.comm.deadline_s);
  // Again, because MPI's start installs its own handlers.
  train::catch_stop_signals();
  const std::string backend = decide_backend(launch, choice_name(config.backend));
  config.backend = parse_choice<config::BackendChoice>(backend, "backend");
  config::resolve(config, launch.rank.world);
  const std::string preflight = run_preflight(launch, config);
  Compute compute = prepare_compute(launch, {.backend = backend,
                                             .threads = config.threads,
                                             .require_binding = config.binding.require,
                                             .share_gpu = config.comm.share_gpu,
                                             .pace = pace_of(config)});
  const auto communicator = connect(launch, compute,
                                    {.deadline_s = config.comm.deadline_s,
                                     .share_gpu = config.comm.share_gpu,
                                     .deterministic = config.deterministic});
  const train::Outcome outcome =
      train::run_training({.config = std::move(config),
                           .bind_worker = compute.bind_worker,
                           .spare_cores = compute.spare_cores,
                           .binding_report = compute.binding_report,
                           .preflight = preflight,
                           .command = command_line(launch),
                           .started_s = started_s,
                           .allocation = allocation,
                           .nodes = launch.nodes},
                          *compute.backend, *communicator, *launch.control);
  return outcome == train::Outcome::stopped ? status_stopped : status_done;
}

}  // namespace

Command add_train(Arguments root) {
  auto options = std::make_shared<RunOptions>();
  Arguments app = root.add_command(
      "train", "Train a ResNet on shards. Start it by srun or mpirun, one process for each rank");
  options->add_to(app);
  return {app, [options](Launch& launch) { return train_model(launch, options->config()); }};
}

}  // namespace lockstep::app
