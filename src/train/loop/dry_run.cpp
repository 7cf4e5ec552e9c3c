#include "train/loop/run_loop.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/observe/report.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::train {
namespace {

constexpr std::uint64_t steps_before = 2, most_measured = 20;
constexpr double enough_s = 5;

/// Of the slowest rank.
struct TriedSteps {
  std::uint64_t count = 0;
  double seconds = 0, forward_s = 0;
};

/// The ranks agree after each step whether there is another.
TriedSteps measure_steps(const RunParts& parts) {
  const auto schedule = make_schedule(parts.config, parts.data.steps_per_epoch());
  const std::uint64_t last = std::min(parts.data.steps_per_epoch(), steps_before + most_measured);
  TriedSteps tried;
  for (std::uint64_t step = 0; step < last && tried.seconds < enough_s; ++step) {
    const double began_s = now_s();
    const data::Batch batch = parts.data.next(step);
    parts.communicator.begin_step(step + 1);
    const StepReport report =
        parts.trainer.step(batch, parts.data.global_rows(step), learning_rate(schedule, step),
                           [&] { return parts.data.look_ahead(step + 1); });
    parts.data.release(batch);
    const auto slowest =
        parts.control.max({now_s() - began_s, report.times.forward_ms / 1e3}, "trying steps");
    // Where an epoch has hardly any steps, the slow first ones are all that there is to measure.
    if (step < steps_before && last > steps_before) continue;
    ++tried.count;
    tried.seconds += slowest[0];
    tried.forward_s += slowest[1];
  }
  return tried;
}

}  // namespace

void try_steps(const RunParts& parts) {
  const config::Config& config = parts.config;
  parts.data.start_loader({}, parts.backend.device());
  const TriedSteps tried = measure_steps(parts);
  const double peak =
      parts.control.max({static_cast<double>(peak_resident_bytes())}, "trying steps")[0];
  const auto count = static_cast<double>(tried.count);
  const double step_s = tried.seconds / count;
  const auto batch = static_cast<double>(config.batch);
  double validation_s = 0;
  std::uint64_t validations = 0;
  if (const data::DataSet* rows = parts.data.validation()) {
    // Forward passes of all its rows: an estimate.
    validation_s = static_cast<double>(rows->info().rows) / batch * tried.forward_s / count;
    validations = (config.epochs + config.eval.every_epochs - 1) / config.eval.every_epochs;
  }
  log::info(observe::expected_time(step_s, config.epochs * parts.data.steps_per_epoch(),
                                   validation_s, validations));
  const auto state = static_cast<double>(model::checkpoint_bytes({}, parts.trainer.parameters()));
  log::info(fmt::format("{:.0f} images/s, from {} after the first; peak memory {} a rank{}",
                        batch / step_s, counted(tried.count, "step"), human_bytes(peak),
                        parts.files.copies() == 0
                            ? ""
                            : fmt::format(", and {} more on rank 0 while a checkpoint is written",
                                          human_bytes(state))));
  log::info("dry run: nothing was written");
}

}  // namespace lockstep::train
