#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/arguments.hpp"
#include "app/commands.hpp"
#include "lockstep/config/choices.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::app {

/// The options of a benchmark of whole training steps.
struct StepOptions {
  std::string model = "resnet20", precision = "fp32", backend = "auto", recompute = "none",
              winograd = "auto", all_reduce = "auto", json;
  std::size_t batch = 128, steps = 10, warm_up = 3, image = 0, classes = 0, threads = 0,
              memory_limit = 0;
  float bucket_mb = 0;
  double clock_row_ms = 0, clock_step_ms = 0, clock_efficiency = 0.5;
  std::string clock_profile;
  bool share_gpu = false;
  config::Switch fuse_norms = config::Switch::automatic, graph = config::Switch::automatic,
                 tune = config::Switch::automatic;
  std::string tune_cache = "runs/plans.txt";

  void add_to(Arguments app);
  /// Throws InputError for numbers that this world, or any, cannot use.
  void require_sound(int world) const;
  nn::Network network() const;
  std::optional<backend::Pace> pace() const;  ///< of the clock backend; empty for the others
  /// `on_gpu`: with all that trainings do there, unless these options say otherwise.
  train::TrainerSpec trainer(const nn::Network& network, int world, bool on_gpu) const;
};

/// Decides --winograd auto by what rank 0 measures, and lets rank 0 alone write the plan file.
/// Collective.
void share_choices(comm::Control& control, backend::Backend& backend, train::TrainerSpec& spec);

/// Random images and labels: one rank's part of a global batch, in memory like a loader's.
struct Synthetic {
  Synthetic(const nn::Network& network, std::size_t rows, std::uint64_t seed,
            device::Device& device);
  device::PinnedBuffer images;
  std::vector<data::Target> targets;
  data::Batch batch;
};

/// Wall times of the steps of one configuration in ms, each of the slowest rank.
struct StepSeries {
  std::vector<double> step, forward, backward, exposed, update;
};

/// Runs one step on all ranks, which begin together, so that a delay in one step does not count for
/// the next. Collective.
void one_step(comm::Control& control, train::Trainer& trainer, const Synthetic& data,
              std::size_t global_rows, StepSeries* series = nullptr);

/// Runs the steps that are not measured. Collective.
void warm_up(comm::Control& control, const StepOptions& options, train::Trainer& trainer,
             const Synthetic& data);

/// Runs one step that does not count, and then `steps`, as a training does on a device that runs
/// later than the host: no wait in between, but for the step `ahead` steps before. Times are by the
/// device's clock, from the end of the step before. Collective.
void steps_in_a_row(comm::Control& control, train::Trainer& trainer, const Synthetic& data,
                    std::size_t global_rows, std::size_t ahead, std::size_t steps,
                    StepSeries& series);

}  // namespace lockstep::app
