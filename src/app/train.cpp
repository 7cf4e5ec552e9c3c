#include <charconv>
#include <filesystem>

#include "commands.hpp"
#include "compute.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/sys/walltime.hpp"
#include "lockstep/train/run.hpp"
#include "lockstep/train/stop_signal.hpp"
#include "node_check.hpp"
#include "run_options.hpp"
#include "status.hpp"

namespace lockstep::app {
namespace {

/// Before MPI starts: asking Slurm starts a process, which some networks' drivers forbid later.
train::Allocation look_at_allocation() {
  const sys::EnvLookup env = sys::process_environment();
  const sys::RankInfo self = sys::identify(env, std::nullopt);
  train::Allocation allocation{self.host, env("SLURM_JOB_ID").value_or(""), 0, std::nullopt};
  if (self.rank != 0) return allocation;
  const std::string restarts = env("SLURM_RESTART_COUNT").value_or("0");
  std::from_chars(restarts.data(), restarts.data() + restarts.size(), allocation.restarts);
  if (const auto left_s = sys::allocation_left_s(env)) allocation.end_s = now_s() + *left_s;
  return allocation;
}

/// JSON of what was found; empty where nobody asked.
std::string fly_over_nodes(Launch& launch, const train::Config& config) {
  if (!config.preflight.check && !config.preflight.require) return "";
  return check_nodes(launch, {std::filesystem::path(config.out).parent_path().string(),
                              {config.data.train, config.data.val},
                              config.preflight.require})
      .json;
}

int run_training(Launch& launch, train::Config config) {
  const double started_s = now_s();
  train::catch_stop_signals();  // one may come before the other ranks have
  const train::Allocation allocation = look_at_allocation();
  launch.silence_s = config.liveness.timeout_s;
  launch.start(config.comm.deadline_s);
  // Again, behind MPI's start, which installs handlers of its own.
  train::catch_stop_signals();
  const std::string backend = decide_backend(launch, choice_name(config.backend));
  config.backend = parse_choice<train::BackendChoice>(backend, "backend");
  train::resolve(config, launch.rank.world);
  const std::string preflight = fly_over_nodes(launch, config);
  Compute compute = prepare_compute(
      launch, {backend, config.threads, config.binding.require, config.comm.share_gpu});
  const auto communicator = connect(
      launch, compute, {config.comm.deadline_s, config.comm.share_gpu, config.deterministic});
  train::Run run({std::move(config), compute.bind_worker, compute.spare_cores,
                  compute.binding_report, preflight, started_s, allocation},
                 *compute.backend, *communicator, *launch.control);
  return run.train() == train::Outcome::stopped ? status_stopped : status_done;
}

}  // namespace

Command add_train(Arguments root) {
  auto options = std::make_shared<RunOptions>();
  Arguments app = root.add_command(
      "train", "Train a ResNet on shards. Start it by srun or mpirun, one process for each rank");
  options->add_to(app);
  return {app, [options](Launch& launch) { return run_training(launch, options->config()); }};
}

}  // namespace lockstep::app
