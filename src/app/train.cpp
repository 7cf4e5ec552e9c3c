#include "commands.hpp"
#include "compute.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/train/run.hpp"
#include "lockstep/train/stop_signal.hpp"
#include "run_options.hpp"
#include "status.hpp"

namespace lockstep::app {
namespace {

int run_training(Launch& launch, train::Config config) {
  const double started_s = now_s();
  launch.silence_s = config.liveness.timeout_s;
  launch.start(config.comm.deadline_s);
  // Behind MPI's start, which installs handlers of its own.
  train::catch_stop_signals();
  config.backend = decide_backend(launch, config.backend);
  train::resolve(config, launch.rank.world);
  Compute compute = prepare_compute(
      launch, {config.backend, config.threads, config.binding.require, config.comm.share_gpu});
  const auto communicator = connect(
      launch, compute, {config.comm.deadline_s, config.comm.share_gpu, config.deterministic});
  train::Run run({std::move(config), compute.bind_worker, compute.spare_cores,
                  compute.binding_report, started_s},
                 *compute.backend, *communicator, *launch.control);
  return run.train() == train::Outcome::stopped ? status_stopped : status_done;
}

}  // namespace

Command add_train(CLI::App& root) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* app = root.add_subcommand(
      "train", "Train a ResNet on shards. Start it by srun or mpirun, one process for each rank");
  options->add_to(*app);
  return {app, [options](Launch& launch) { return run_training(launch, options->config()); }};
}

}  // namespace lockstep::app
