#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/train/prepared_run.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::app {

/// The options of a benchmark of whole training steps: those of a training, and how many steps.
struct StepOptions {
  RunOptions run;
  std::size_t steps = 10, warm_up = 3;
  std::string json;

  void add_to(Arguments app);
  /// As RunOptions::of_steps().
  config::Config config() const;
  void check(const Supposed& supposed) const;
};

/// Random images and labels: one rank's part of a global batch, in memory like a loader's.
struct Synthetic {
  Synthetic(const nn::Network& network, std::size_t rows, std::uint64_t seed,
            device::Device& device);
  device::PinnedBuffer images;
  std::vector<data::Target> targets;
  data::Batch batch;
};

/// Wall times of the steps of one configuration in ms, and of their parts, each of the slowest
/// rank.
struct StepSeries {
  std::vector<double> step;
  std::vector<observe::StepTimes> parts;
  /// Sum and rows of all that count, of all ranks: a step that was skipped does not.
  double loss = 0, rows = 0;
};

/// What a benchmark's JSON begins with: the work, the ranks and the backend; then the speed.
nlohmann::ordered_json described(const config::Config& config, int ranks,
                                 const backend::Backend& backend);
void add_speed(const std::vector<double>& steps_ms, nlohmann::ordered_json& json);
/// "resnet20 fp32 batch 64 on 2 x cpu"
std::string title_of(const nlohmann::ordered_json& described);
/// Of all ranks, so far. Collective.
double peak_memory(comm::Control& control);

/// A training as its configuration has it, on random rows. Every rank makes the same calls; all are
/// collective. Steps throw Error of Ending::diverged when their loss is no number: a device that
/// computes such has no speed.
class StepBench {
 public:
  /// `spec` names what the rows are like. The references must outlive this.
  StepBench(const train::RunSpec& spec, backend::Backend& backend, comm::Communicator& communicator,
            comm::Control& control);

  train::PreparedRun& run() { return run_; }
  const config::Config& config() const { return run_.config(); }  ///< with what was decided
  const Synthetic& data() const { return data_; }
  comm::Control& control() { return control_; }
  /// One step on all ranks, which begin together, so that a delay in one step does not count for
  /// the next.
  void step(train::Trainer& trainer, StepSeries* series = nullptr);
  void steps(train::Trainer& trainer, std::size_t count, StepSeries* series = nullptr);
  /// One step that does not count, and then `count`, as a training makes them on a device that runs
  /// later than the host: no wait in between, but for the step `ahead` steps before. Times are by
  /// the device's clock, from the end of the step before.
  void steps_in_a_row(train::Trainer& trainer, std::size_t ahead, std::size_t count,
                      StepSeries& series);

 private:
  void add(const StepSeries& mine, StepSeries& series);

  comm::Control& control_;
  train::PreparedRun run_;
  Synthetic data_;
};

}  // namespace lockstep::app
