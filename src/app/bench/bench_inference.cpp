#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/bench/bench_steps.hpp"
#include "app/commands.hpp"
#include "app/training/training_start.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/infer/classifier.hpp"

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
  Json json = described(bench.config(), launch.rank.world, backend);
  add_speed(times_ms, json);
  json["peak_memory_bytes"] = peak_memory(*launch.control);
  if (launch.rank.rank != 0) return status_done;
  log::info(fmt::format("inference: {}: {:.1f} images/s, {:.2f} ms a batch, peak memory {}",
                        title_of(json), json["images_per_s"].get<double>(),
                        json["step_ms"].get<double>(),
                        human_bytes(json["peak_memory_bytes"].get<double>())));
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
  return {app, [options](Launch& launch) { return run_bench(launch, *options); },
          [options](const Supposed& supposed) { options->check(supposed); }};
}

}  // namespace lockstep::app
