#pragma once

#include <memory>
#include <optional>

#include "app/start/compute.hpp"
#include "app/start/launch.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/config/recipe.hpp"
#include "lockstep/train/run.hpp"

namespace lockstep::app {

/// The ranks of a training, bound and connected.
struct TrainingStart {
  Compute compute;
  std::unique_ptr<comm::Communicator> communicator;
  std::unique_ptr<comm::ActivityObserver> ranges;  ///< for a profiler; may be null
  train::RunSpec spec;
};

/// Throws InputError where no training set is named.
void require_data(const config::Config& config);

/// Synthetic rows are for what measures steps without a data set: RunSpec::synthetic.
enum class TrainedRows { of_data_set, synthetic };

/// From a process to a rank that may train: catches stop signals, joins the ranks, compares their
/// builds, checks the nodes if asked to, binds, connects. `config` is as asked for; of
/// `recipe`, which it may follow, rank 0 says what it sets. Collective;
/// call it once. Throws InputError as its parts do.
TrainingStart start_training(Launch& launch, config::Config config,
                             const std::optional<config::Recipe>& recipe,
                             TrainedRows rows = TrainedRows::of_data_set);

}  // namespace lockstep::app
