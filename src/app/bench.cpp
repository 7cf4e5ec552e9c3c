#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench_data.hpp"
#include "commands.hpp"
#include "compute.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/train/trainer.hpp"
#include "status.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model = "resnet20", precision = "fp32", backend = "auto", json;
  std::size_t batch = 128, steps = 10, warm_up = 3, image = 0, classes = 0, threads = 0;
  float bucket_mb = 1;
  bool reduction = false, layers = false, share_gpu = false;
};

/// A communicator that moves nothing: what a step takes when ranks do not wait for each other.
class NoReduction final : public comm::Communicator {
 public:
  explicit NoReduction(comm::Communicator& real) : real_(real) {}
  int rank() const override { return real_.rank(); }
  int world() const override { return real_.world(); }
  Stream& network() override { return real_.network(); }
  void all_reduce_sum(float*, std::size_t, std::string_view) override {}
  void progress() override {}

 private:
  comm::Communicator& real_;
};

/// Random images and labels, one rank's part of a global batch.
struct Synthetic {
  Synthetic(const nn::Network& network, std::size_t rows, std::uint64_t seed)
      : images(rows * network.input.count()), targets(rows) {
    for (std::size_t i = 0; i < images.size(); ++i)
      images[i] = static_cast<std::uint8_t>(philox(seed, i, 0).word[0]);
    for (std::size_t i = 0; i < rows; ++i) {
      const auto label = static_cast<std::int32_t>(
          below(philox(seed, i, 1).word[0], static_cast<std::uint32_t>(network.classes)));
      targets[i] = {label, label, 1};
    }
    batch.images = images.data();
    batch.targets = targets.data();
    batch.rows = batch.capacity = rows;
  }
  std::vector<std::uint8_t> images;
  std::vector<data::Target> targets;
  data::Batch batch;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Wall times of the steps of one configuration, ms; each the slowest rank's.
struct Series {
  std::vector<double> step, forward, backward, exposed, update;

  void add(const std::vector<double>& ms) {
    step.push_back(ms[0]);
    forward.push_back(ms[1]);
    backward.push_back(ms[2]);
    exposed.push_back(ms[3]);
    update.push_back(ms[4]);
  }
};

/// The exchange of times lets all ranks begin the next step together: what one step lost does not
/// count for the next.
void one_step(comm::Control& control, train::Trainer& trainer, const Synthetic& data,
              std::size_t global_rows, Series* series = nullptr) {
  const double begin = now_ms();
  const train::StepTimes times = trainer.step(data.batch, global_rows, 1e-3f).times;
  const auto slowest = control.max({now_ms() - begin, times.forward_ms, times.backward_ms,
                                    times.exposed_comm_ms, times.update_ms},
                                   "step");
  if (series) series->add(slowest);
}

/// Median time of each step of the tape, in its order: where forward and backward spend theirs.
Json time_tape(const Options& options, Backend& backend, train::Trainer& trainer,
               const Synthetic& data) {
  const auto program =
      backend.compile(trainer.network(), trainer.program_spec(), trainer.parameters());
  program->load(data.batch);
  Tape tape = program->forward();
  tape.insert(tape.end(), program->backward(false).begin(), program->backward(false).end());
  std::vector<std::vector<double>> times_ms(tape.size());
  const std::unique_ptr<Timeline> timeline = backend.device().make_timeline();
  for (std::size_t i = 0; i < options.warm_up + options.steps; ++i) {
    timeline->mark();
    for (const TapeStep& step : tape) {
      step.run();
      timeline->mark();
    }
    const std::vector<double> laps_ms = timeline->laps_ms();
    if (i < options.warm_up) continue;
    for (std::size_t step = 0; step < tape.size(); ++step) times_ms[step].push_back(laps_ms[step]);
  }
  Json list = Json::array();
  for (std::size_t step = 0; step < tape.size(); ++step)
    list.push_back({{"name", tape[step].name}, {"ms", median(times_ms[step])}});
  return list;
}

train::TrainerSpec trainer_spec(const Options& options, const nn::Network& network, int world) {
  train::TrainerSpec spec;
  spec.network = network;
  spec.program.batch = options.batch / static_cast<std::size_t>(world);
  spec.program.precision = parse_precision(options.precision);
  spec.program.mean = std::vector<float>(network.input.channels, 0.5f);
  spec.program.stddev = std::vector<float>(network.input.channels, 0.25f);
  spec.weight_decay = 1e-4f;
  spec.bucket_bytes = static_cast<std::size_t>(options.bucket_mb * 1e6f);
  return spec;
}

nn::Network network_of(const Options& options) {
  return nn::resnet(nn::usual_resnet(options.model, options.image, options.classes));
}

Json to_json(const Options& options, int world, const Backend& backend, const Series& series,
             const Series& alone, double peak_bytes, double first_step_s) {
  const double step_ms = median(series.step);
  Json json = {{"model", options.model},
               {"precision", options.precision},
               {"batch", options.batch},
               {"ranks", world},
               {"backend", backend.description()},
               {"steps", series.step.size()},
               {"step_ms", step_ms},
               {"best_step_ms", *std::min_element(series.step.begin(), series.step.end())},
               {"images_per_s", static_cast<double>(options.batch) / step_ms * 1e3},
               {"forward_ms", median(series.forward)},
               {"backward_ms", median(series.backward)},
               {"exposed_comm_ms", median(series.exposed)},
               {"update_ms", median(series.update)},
               {"peak_memory_bytes", peak_bytes},
               {"first_step_s", first_step_s}};
  if (!alone.step.empty()) {
    json["step_without_reduction_ms"] = median(alone.step);
    std::vector<double> ratios;
    for (std::size_t i = 0; i < alone.step.size(); ++i)
      ratios.push_back(series.step[i] / alone.step[i]);
    json["reduction_ratio"] = median(ratios);
  }
  return json;
}

void report(const Options& options, const Json& json) {
  const auto figure = [&](const char* name) { return json[name].get<double>(); };
  log::info(fmt::format(
      "{} {} batch {} on {} x {}: {:.1f} images/s, step {:.1f} ms (forward {:.1f}, backward "
      "{:.1f}, exposed communication {:.1f}, update {:.1f}), peak memory {}",
      options.model, options.precision, options.batch, json["ranks"].get<int>(),
      json["backend"].get<std::string>(), figure("images_per_s"), figure("step_ms"),
      figure("forward_ms"), figure("backward_ms"), figure("exposed_comm_ms"), figure("update_ms"),
      human_bytes(figure("peak_memory_bytes"))));
  if (options.reduction)
    log::info(fmt::format("without reduction {:.1f} ms: a step with it takes {:.3f} times that",
                          figure("step_without_reduction_ms"), figure("reduction_ratio")));
  if (options.layers)
    for (const Json& step : json["tape"])
      log::info(fmt::format("{:10.3f} ms  {}", step["ms"].get<double>(),
                            step["name"].get<std::string>()));
  if (!options.json.empty()) write_report(options.json, json.dump(2) + "\n");
}

int run_bench(Launch& launch, const Options& options) {
  const double started_s = now_s();
  launch.start();
  const int world = launch.rank.world;
  require(
      options.batch > 0 && options.batch % static_cast<std::size_t>(world) == 0,
      fmt::format("--batch {}: the global batch must divide among {} ranks", options.batch, world));
  require(options.steps > 0, "--steps must be at least 1");
  const std::string backend = decide_backend(launch, options.backend);
  Compute compute = prepare_compute(launch, {backend, options.threads, false, options.share_gpu});
  const auto communicator = connect(launch, compute, {120, options.share_gpu, false});
  NoReduction no_reduction(*communicator);
  const nn::Network network = network_of(options);
  const train::TrainerSpec spec = trainer_spec(options, network, world);
  const Synthetic data(network, spec.program.batch, static_cast<std::uint64_t>(launch.rank.rank));

  train::Trainer trainer(spec, *compute.backend, *communicator);
  one_step(*launch.control, trainer, data, options.batch);
  const double first_step_s = now_s() - started_s;
  for (std::size_t i = 0; i < options.warm_up; ++i)
    one_step(*launch.control, trainer, data, options.batch);
  // Here, because a second trainer is part of no training.
  const double peak =
      launch.control->sum({static_cast<double>(peak_resident_bytes())}, "peak memory")[0];

  std::unique_ptr<train::Trainer> alone;
  if (options.reduction) {
    alone = std::make_unique<train::Trainer>(spec, *compute.backend, no_reduction);
    for (std::size_t i = 0; i < options.warm_up; ++i)
      one_step(*launch.control, *alone, data, options.batch);
  }
  Series with, without;
  for (std::size_t i = 0; i < options.steps; ++i) {
    one_step(*launch.control, trainer, data, options.batch, &with);
    if (alone) one_step(*launch.control, *alone, data, options.batch, &without);
  }
  Json json = to_json(options, world, *compute.backend, with, without, peak, first_step_s);
  if (options.layers) json["tape"] = time_tape(options, *compute.backend, trainer, data);
  if (launch.rank.rank == 0) report(options, json);
  return status_done;
}

}  // namespace

Command add_bench(CLI::App& root) {
  auto options = std::make_shared<Options>();
  CLI::App* app = root.add_subcommand("bench", "Measure this machine");
  app->require_subcommand(1);
  CLI::App* train = app->add_subcommand("train", "Whole training steps on synthetic images");
  train->add_option("--model", options->model, "as for lockstep train")->capture_default_str();
  train->add_option("--precision", options->precision, "fp32, tf32, bf16 or fp16")
      ->capture_default_str();
  train->add_option("--backend", options->backend, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  train->add_flag("--share-gpu", options->share_gpu, "ranks may use one GPU together (for tests)");
  train->add_option("--batch", options->batch, "rows of all ranks together")->capture_default_str();
  train->add_option("--image", options->image, "side of the images; 0: 32 or 224, as the model");
  train->add_option("--classes", options->classes, "0: 10 or 1000, as the model");
  train->add_option("--threads", options->threads, "compute threads of a rank; 0: its cores");
  train->add_option("--steps", options->steps, "steps that count")->capture_default_str();
  train->add_option("--warm-up", options->warm_up, "steps before them")->capture_default_str();
  train->add_option("--bucket-mb", options->bucket_mb, "megabytes of gradients reduced at once")
      ->capture_default_str();
  train->add_flag("--reduction", options->reduction,
                  "also run each step without reducing gradients, in turn, and compare");
  train->add_flag("--layers", options->layers, "also time each step of the tape");
  train->add_option("--json", options->json, "write the figures to this file");
  const Command data = add_bench_data(*app);
  return {app, [options, data](Launch& launch) {
            return data.app->parsed() ? data.run(launch) : run_bench(launch, *options);
          }};
}

}  // namespace lockstep::app
