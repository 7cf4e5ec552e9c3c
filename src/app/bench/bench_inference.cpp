#include "app/bench/bench_inference.hpp"

#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "app/bench/bench_steps.hpp"
#include "app/status.hpp"
#include "app/training/training_start.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/infer/classifier.hpp"
#include "lockstep/nn/arena.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

/// Wall times of the batches in ms, each of the slowest rank.
std::vector<double> measure(const StepOptions& options, comm::Control& control,
                            infer::Inference& network, const data::Batch& batch) {
  std::vector<double> times_ms;
  for (std::size_t i = 0; i < options.warm_up + options.steps; ++i) {
    const double begin = now_ms();
    network.run(batch);
    network.take_metrics();
    const double slowest_ms = control.max({now_ms() - begin}, "batch")[0];
    if (i >= options.warm_up) times_ms.push_back(slowest_ms);
  }
  return times_ms;
}

int run_bench(Launch& launch, const StepOptions& options) {
  const TrainingStart start =
      start_training(launch, options.config(), options.run.recipe(), TrainedRows::synthetic);
  StepBench bench(start.spec, *start.compute.backend, *start.communicator, *launch.control);
  const config::Config& config = bench.config();
  backend::Backend& backend = *start.compute.backend;
  const nn::Network& net = bench.run().trainer_spec().network;
  backend::ProgramSpec program = bench.run().trainer_spec().program;
  program.batch = bench.data().batch.rows;
  // The weights that a training begins with.
  const auto parameters = backend.make_parameters(net, program.precision, backend::Keeps::weights);
  backend::initialise(net, {}, *parameters);
  infer::Inference network(backend, net, program, *parameters);
  const std::vector<double> times_ms =
      measure(options, *launch.control, network, bench.data().batch);
  const double peak =
      launch.control->sum({static_cast<double>(peak_resident_bytes())}, "peak memory")[0];
  const double median_ms = upper_median(times_ms);
  const double images_per_s = static_cast<double>(config.batch) / median_ms * 1e3;
  const Json json = {{"model", config.model},
                     {"precision", to_string(config.precision)},
                     {"batch", config.batch},
                     {"ranks", launch.rank.world},
                     {"backend", backend.description()},
                     {"steps", times_ms.size()},
                     {"step_ms", median_ms},
                     {"best_step_ms", *std::min_element(times_ms.begin(), times_ms.end())},
                     {"images_per_s", images_per_s},
                     {"peak_memory_bytes", peak}};
  if (launch.rank.rank != 0) return status_done;
  log::info(
      fmt::format("inference: {} {} batch {} on {} x {}: {:.1f} images/s, {:.2f} ms a batch, "
                  "peak memory {}",
                  config.model, to_string(config.precision), config.batch, launch.rank.world,
                  backend.description(), images_per_s, median_ms, human_bytes(peak)));
  if (!options.json.empty()) write_report(options.json, json_text(json, 2) + "\n");
  return status_done;
}

}  // namespace

Command add_bench_inference(Arguments bench) {
  auto options = std::make_shared<StepOptions>();
  Arguments app = bench.add_command(
      "inference",
      "Forward alone on synthetic images, as a validation runs it, with the options of train");
  options->add_to(app);
  return {app, [options](Launch& launch) { return run_bench(launch, *options); }};
}

}  // namespace lockstep::app
