#include "app/bench/bench_inference.hpp"

#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "app/bench/bench_steps.hpp"
#include "app/cli/count_option.hpp"
#include "app/start/compute.hpp"
#include "app/status.hpp"
#include "lockstep/backend/inference/inference.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/nn/arena.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

struct InferenceOptions {
  std::string model = "resnet20", precision = "fp32", backend = "auto", winograd = "auto", json;
  std::size_t batch = 128, steps = 10, warm_up = 3, image = 0, threads = 0;

  void add_to(Arguments app) {
    app.add("--model", model, "as for lockstep train").shows_default();
    app.add("--precision", precision, "fp32, tf32, bf16 or fp16").shows_default();
    app.add("--backend", backend, "auto, cpu or cuda")
        .one_of({"auto", "cpu", "cuda"})
        .shows_default();
    app.add("--winograd", winograd, "as for lockstep train").shows_default();
    add_count(app, "--batch", batch, a_batch, "rows of all ranks together");
    add_count(app, "--data.size,--image", image, an_image_or_usual,
              "side of the images; 0: 32 or 224, by the model");
    add_count(app, "--threads", threads, threads_or_all, "compute threads of a rank; 0: its cores");
    add_count(app, "--steps", steps, {1, 1'000'000}, "batches to measure");
    add_count(app, "--warm-up", warm_up, {0, 1'000'000}, "batches before those");
    app.add("--json", json, "write the figures to this file");
  }

  train::TrainerSpec program(int world) const {
    StepOptions as_trained;
    as_trained.model = model;
    as_trained.precision = precision;
    as_trained.winograd = winograd;
    as_trained.batch = batch;
    as_trained.image = image;
    as_trained.require_sound(world);
    return as_trained.trainer(as_trained.network(), world, false);
  }
};

/// Wall times of the batches in ms, each of the slowest rank.
std::vector<double> measure(const InferenceOptions& options, comm::Control& control,
                            backend::Inference& network, const data::Batch& batch) {
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

int run_bench(Launch& launch, const InferenceOptions& options) {
  launch.start();
  const int world = launch.rank.world;
  train::TrainerSpec spec = options.program(world);
  const std::string backend = decide_backend(launch, options.backend);
  const Compute compute = prepare_compute(launch, {.backend = backend, .threads = options.threads});
  share_choices(*launch.control, *compute.backend, spec);
  const Synthetic data(spec.network, spec.program.batch,
                       static_cast<std::uint64_t>(launch.rank.rank), compute.backend->device());
  // The weights that a training begins with.
  const auto parameters = compute.backend->make_parameters(spec.network, spec.program.precision,
                                                           backend::Keeps::weights);
  backend::initialise(spec.network, {}, *parameters);
  backend::Inference network(*compute.backend, spec.network, spec.program, *parameters);
  const std::vector<double> times_ms = measure(options, *launch.control, network, data.batch);
  const double peak =
      launch.control->sum({static_cast<double>(peak_resident_bytes())}, "peak memory")[0];
  const double median_ms = upper_median(times_ms);
  const double images_per_s = static_cast<double>(options.batch) / median_ms * 1e3;
  const Json json = {{"model", options.model},
                     {"precision", options.precision},
                     {"batch", options.batch},
                     {"ranks", world},
                     {"backend", compute.backend->description()},
                     {"steps", times_ms.size()},
                     {"step_ms", median_ms},
                     {"best_step_ms", *std::min_element(times_ms.begin(), times_ms.end())},
                     {"images_per_s", images_per_s},
                     {"peak_memory_bytes", peak}};
  if (launch.rank.rank != 0) return status_done;
  log::info(
      fmt::format("inference: {} {} batch {} on {} x {}: {:.1f} images/s, {:.2f} ms a batch, "
                  "peak memory {}",
                  options.model, options.precision, options.batch, world,
                  compute.backend->description(), images_per_s, median_ms, human_bytes(peak)));
  if (!options.json.empty()) write_report(options.json, json_text(json, 2) + "\n");
  return status_done;
}

}  // namespace

Command add_bench_inference(Arguments bench) {
  auto options = std::make_shared<InferenceOptions>();
  Arguments app =
      bench.add_command("inference", "Forward alone on synthetic images, as a validation runs it");
  options->add_to(app);
  return {app, [options](Launch& launch) { return run_bench(launch, *options); }};
}

}  // namespace lockstep::app
