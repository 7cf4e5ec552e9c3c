#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "app/start/meeting_options.hpp"
#include "app/training/training_start.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/train/ending/notify.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/run.hpp"

namespace lockstep::app {
namespace {

struct Asked {
  config::Config config;
  std::optional<config::Recipe> recipe = std::nullopt;
  bool dry_run = false;
};

/// Collective: a rank that ends with another status than 0 lets a launcher end rank 0.
void tell_end(Launch& launch, const config::Config& config, const char* status) {
  train::give_notice(std::min(train::notice_limit_s, config.comm.deadline_s / 2), status, "");
  if (!config.notify.empty()) launch.control->barrier("the command of --notify");
}

void require_sound(const Asked& asked) {
  require(!asked.dry_run || asked.config.resume != "auto",
          "--dry-run measures a run from its beginning: leave out --resume auto");
}

void check_training(Asked asked, const Supposed& supposed) {
  if (!supposed.whole) return train::check_inputs(asked.config, supposed.shows);
  require_sound(asked);
  require_data(asked.config);
  config::resolve(asked.config, supposed.ranks);
  train::check_run(std::move(asked.config), supposed.ranks, supposed.shows);
}

int train_model(Launch& launch, Asked asked) {
  require_sound(asked);
  const auto& [config, recipe, dry_run] = asked;
  if (!dry_run && rank_by_environment().rank == 0) train::arm_notice(config.notify);
  try {
    TrainingStart start = start_training(launch, std::move(asked.config), recipe);
    start.spec.dry_run = dry_run;
    const bool stopped =
        train::run_training(start.spec, *start.compute.backend, *start.communicator,
                            *launch.control) == train::Outcome::stopped;
    tell_end(launch, start.spec.config, stopped ? "stopped" : "finished");
    return stopped ? status_stopped : status_done;
  } catch (const std::exception& error) {
    // The other ranks give this one some seconds to speak first.
    train::give_notice(launch.rank.world > 1 ? train::short_notice_s : train::notice_limit_s,
                       "failed", error.what());
    throw;
  }
}

}  // namespace

Command add_train(Arguments root) {
  auto options = std::make_shared<RunOptions>();
  auto dry_run = std::make_shared<bool>(false);
  Arguments app = root.add_command(
      "train", "Train a ResNet on shards. Start it by srun or mpirun, one process for each rank");
  options->add_to(app, RunOptions::KeysOf::first_help);
  add_meeting(app);
  app.add_flag("--dry-run", *dry_run,
               "make some steps, say what memory and time the run would take, and write nothing");
  const auto asked = [options, dry_run] {
    return Asked{.config = options->config(), .recipe = options->recipe(), .dry_run = *dry_run};
  };
  return {app, [asked](Launch& launch) { return train_model(launch, asked()); },
          [asked](const Supposed& supposed) { check_training(asked(), supposed); }};
}

Command add_resume(Arguments root) {
  auto options = std::make_shared<RunOptions>();
  auto run = std::make_shared<std::string>();
  Arguments app = root.add_command(
      "resume", "Continue a run from its newest checkpoint, with the keys that it had");
  app.add("run", *run, "the run's folder").required();
  add_meeting(app);
  options->add_to(app, RunOptions::KeysOf::first_help);
  const auto asked = [options, run] {
    return Asked{.config = options->config_of_run(train::RunDirectory(*run))};
  };
  return {app, [asked](Launch& launch) { return train_model(launch, asked()); },
          [asked, run, options](const Supposed& supposed) {
            supposed.shows(*run) ? check_training(asked(), supposed) : (void)options->config();
          }};
}

}  // namespace lockstep::app
