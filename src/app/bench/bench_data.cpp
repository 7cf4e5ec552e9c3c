#include <algorithm>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/bench/row_clock.hpp"
#include "app/cli/command_line.hpp"
#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "app/start/launch.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/data/augment/augment.hpp"
#include "lockstep/data/loading/loader.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/train/decide/packed_sets.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

struct DataBenchOptions {
  RunOptions run;
  std::string path, json;
  config::Config config;  ///< what they say
  std::size_t rounds = 5;
  double seconds = 4, gpu_rate = 6500;
  bool validation = false, normalise = false, loader_only = false;
};

/// Memory for a loader that no device reads from.
class HostMemory final : public device::Device {
 public:
  std::string name() const override { return "host memory"; }
  device::Stream& compute() override { throw Error("host memory computes nothing"); }
};

data::SamplerSpec sampling(const DataBenchOptions& options, const data::DataSet& rows) {
  config::Config config = options.config;
  config.batch = std::min(config.batch, rows.info().rows);
  data::SamplerSpec order = train::training_order(config, rows, 1);
  if (options.validation) order.shuffle = data::Shuffle::none;
  return order;
}

bool counts(const DataBenchOptions& options, const std::string& work) {
  return work != "normalise" || options.normalise;  // otherwise the trainer does it
}

/// One row's time in each kind of work on one core. What else the loader does (claim rows, copy
/// labels, mix) is "assemble": a row's share of a whole loader with one worker, minus the others.
Json describe(const DataBenchOptions& options, const std::vector<RowWork>& works,
              const RoundTimes& row_of_one_s) {
  Json all;
  double known_s = 0, made = 0;
  const auto add = [&](const std::string& name, double seconds, double bytes, double spread) {
    all[name] = {{"microseconds", seconds * 1e6},
                 {"rows_per_s", 1 / seconds},
                 {"bytes_per_s", bytes / seconds},
                 {"spread", spread}};
  };
  for (const RowWork& work : works) {
    const double seconds = work.seconds.smallest();
    // Clocks take time: work that is not done is not shown.
    if (seconds < 0.1e-6) continue;
    add(work.name, seconds, work.bytes, work.seconds.spread());
    if (counts(options, work.name)) known_s += seconds;
    made = work.bytes;
  }
  const double rest_s = row_of_one_s.smallest() - known_s;
  if (rest_s > 0) add("assemble", rest_s, made, row_of_one_s.spread());
  return all;
}

/// The whole loader, running for as long as this lives.
class LoaderClock {
 public:
  LoaderClock(const DataBenchOptions& options, const data::DataSet& rows,
              const data::AugmentSpec& how, std::size_t workers)
      : options_(options),
        rows_(rows),
        image_(data::delivered(rows.info(), how, options.path).row_bytes()),
        floats_(image_),
        loader_(rows, spec_of(options, rows, how, workers), memory_) {}

  /// One round. A row's time is measured from when the batches that were ready are used up.
  void measure(double seconds) {
    for (std::size_t i = 0; i < (seconds_.values.empty() ? 2 : 1) * options_.config.data.slots; ++i)
      take();
    std::size_t done = 0;
    const double start = now_s();
    while (now_s() - start < seconds) done += take();
    seconds_.values.push_back((now_s() - start) / static_cast<double>(done));
  }
  const RoundTimes& row_s() const { return seconds_; }

 private:
  static data::LoaderSpec spec_of(const DataBenchOptions& options, const data::DataSet& rows,
                                  const data::AugmentSpec& how, std::size_t workers) {
    data::LoaderSpec spec;
    spec.sampler = sampling(options, rows);
    spec.augment = how;
    if (!options.validation) spec.mix = train::training_mix(options.config);
    spec.workers = workers;
    spec.slots = options.config.data.slots;
    spec.readahead = options.config.data.readahead;
    spec.epochs = 1 << 20;
    return spec;
  }

  std::size_t take() {
    const data::Batch batch = loader_.next();
    for (std::size_t i = 0; options_.normalise && i < batch.rows; ++i)
      data::normalise(rows_.info(), {batch.images + i * image_, image_}, floats_.data());
    loader_.release(batch);
    return batch.rows;
  }

  const DataBenchOptions& options_;
  const data::DataSet& rows_;
  std::size_t image_;
  std::vector<float> floats_;
  HostMemory memory_;
  data::Loader loader_;
  RoundTimes seconds_;
};

/// In turns, so that a machine whose speed drifts affects all of them.
struct Figures {
  std::vector<RowWork> works;
  std::optional<RoundTimes> one_s;  ///< a row's time with one worker
  RoundTimes all_s;
};

Figures measure_in_turns(const DataBenchOptions& options, const data::DataSet& rows,
                         const data::AugmentSpec& how, std::size_t workers) {
  const double seconds = options.seconds / static_cast<double>(options.rounds);
  std::optional<RowClock> clock;
  std::optional<LoaderClock> one;
  if (!options.loader_only) {
    clock.emplace(rows, how, sampling(options, rows));
    if (workers > 1) one.emplace(options, rows, how, 1);
  }
  LoaderClock all(options, rows, how, workers);
  for (std::size_t round = 0; round < options.rounds; ++round) {
    if (clock) clock->measure(seconds);
    if (one) one->measure(seconds);
    all.measure(seconds);
  }
  Figures figures{.works = clock ? clock->works() : std::vector<RowWork>(),
                  .one_s = std::nullopt,
                  .all_s = all.row_s()};
  if (one) figures.one_s = one->row_s();
  if (workers == 1) figures.one_s = all.row_s();
  return figures;
}

Json measure(const DataBenchOptions& options) {
  data::DataSet rows(options.path, train::external_spec(options.config));
  if (!options.config.data.stage.empty()) {
    const data::RowRange all{0, rows.info().rows};
    const data::NodeCopy copy = rows.copy_to(options.config.data.stage, {&all, 1});
    require(copy.fits,
            fmt::format("the data set does not fit into {}: it needs {}, there is room for {}",
                        options.config.data.stage, human_bytes(static_cast<double>(copy.bytes)),
                        human_bytes(static_cast<double>(copy.available))));
  }
  if (options.config.data.read == config::ReadBy::mmap) rows.map();
  require(!options.normalise || (rows.info().enter_as_bytes() && rows.info().channels <= 4),
          fmt::format("--normalise is for uint8 of 1 to 4 channels: {} has {} of {}", options.path,
                      choice_name(rows.info().element), rows.info().channels));
  data::AugmentSpec how = train::training_augment(options.config, rows.info());
  data::DataSetInfo input = data::delivered(rows.info(), how, options.path);
  if (options.validation)
    how = model::evaluation_augment(infer::preparation(options.config, input), input, rows.info());
  input = data::delivered(rows.info(), how, options.path);
  const std::size_t workers = options.config.data.workers > 0
                                  ? options.config.data.workers
                                  : std::max(1u, std::thread::hardware_concurrency());

  std::uint64_t bytes = 0;
  for (std::size_t row = 0; row < input.rows; ++row) bytes += rows.row_bytes(row);
  const Figures figures = measure_in_turns(options, rows, how, workers);
  const double rate = 1 / figures.all_s.smallest();
  Json json{{"path", options.path},
            {"rows", input.rows},
            {"stored_bytes", static_cast<double>(bytes) / static_cast<double>(input.rows)},
            {"delivered", {input.height, input.width, input.channels}},
            {"element", choice_name(input.element)},
            {"stages", Json::object()},
            {"rounds", options.rounds},
            {"workers", workers},
            {"images_per_s", rate},
            {"spread", figures.all_s.spread()},
            {"images_per_s_and_core", rate / static_cast<double>(workers)},
            {"gpu_images_per_s", options.gpu_rate},
            {"gpus_fed", rate / options.gpu_rate}};
  if (figures.one_s) json["one_worker_images_per_s"] = 1 / figures.one_s->smallest();
  if (!figures.works.empty()) json["stages"] = describe(options, figures.works, *figures.one_s);
  json["peak_memory_bytes"] = peak_resident_bytes();
  return json;
}

std::string vary(const Json& json) {
  return fmt::format("{:.0f} %", 100 * json["spread"].get<double>());
}

void report(const DataBenchOptions& options, const Json& json) {
  const double stored = json["stored_bytes"], rate = json["images_per_s"];
  const Json& shape = json["delivered"];
  const double delivered = shape[0].get<double>() * shape[1].get<double>() * shape[2].get<double>();
  log::info(fmt::format("{}: {} rows, {} each on average, delivered as {} x {} x {}", options.path,
                        json["rows"].dump(), human_bytes(stored), shape[0].dump(), shape[1].dump(),
                        shape[2].dump()));
  std::string slowest;
  double sum = 0, most = 0;
  if (!options.loader_only)
    log::info("  work, on one core        us a row      rows/s       per second   vary by");
  for (const auto& [work, figures] : json["stages"].items()) {
    const double us = figures["microseconds"], bytes = figures["bytes_per_s"];
    log::info(fmt::format("  {:<20}{:13.2f}{:12.0f}{:>17}{:>10}{}", work, us,
                          figures["rows_per_s"].get<double>(), human_bytes(bytes), vary(figures),
                          counts(options, work) ? "" : "  (the trainer's)"));
    if (!counts(options, work)) continue;
    sum += us;
    if (us > most) most = us, slowest = work;
  }
  if (sum > 0)
    log::info(
        fmt::format("  together {:.2f} us; {} is the limit, {:.0f} % of it; the fastest of {} "
                    "rounds, and how much they vary",
                    sum, slowest, 100 * most / sum, options.rounds));
  const bool with_one = json.contains("one_worker_images_per_s");
  const double one = with_one ? json["one_worker_images_per_s"].get<double>() : 0;
  if (with_one) log::info(fmt::format("loader, 1 worker: {:.0f} images/s", one));
  if (json["workers"] != 1)
    log::info(fmt::format(
        "loader, {} workers: {:.0f} images/s{}; rounds vary by {}", json["workers"].dump(), rate,
        with_one ? fmt::format(" ({:.2f} times one)", rate / one) : "", vary(json)));
  const double each = json["images_per_s_and_core"];
  const double cores = options.gpu_rate / each;
  log::info(
      fmt::format("{}/s from files, {}/s into batches, {:.0f} images/s per core; enough for {:.2f} "
                  "GPUs that train {:.0f} images/s each (one such GPU needs {:.1f} cores)",
                  human_bytes(rate * stored), human_bytes(rate * delivered), each,
                  rate / options.gpu_rate, options.gpu_rate, cores));
}

int run(DataBenchOptions& options) {
  const int world = rank_by_environment().world;
  require(
      world == 1,
      fmt::format(
          "bench data measures one process, but {} were started: start it without mpirun or srun",
          world));
  using train::PackedPart;
  options.path = train::packed_set(
      options.path, options.validation ? PackedPart::validation : PackedPart::training);
  config::Config& config = options.config = options.run.of_steps("bench data only reads rows");
  config::require_whole_replicas(config, "this is about rows");
  if (config.batch == 0 && config.batch_per_rank == 0) config.batch = 64;
  config.data.train = options.path;
  config::resolve(config, 1);
  const Json json = measure(options);
  report(options, json);
  if (!options.json.empty()) write_report(options.json, json_text(json, 2) + "\n");
  return status_done;
}

}  // namespace

Command add_bench_data(Arguments bench) {
  auto options = std::make_shared<DataBenchOptions>();
  Arguments app = bench.add_command(
      "data",
      "The input pipeline alone, with the options of train: each kind of work on one core, then "
      "the loader");
  app.add("path", options->path, "a shard or a folder of shards, in place of data.train")
      .required();
  add_count(app, "--rounds", options->rounds, {1, 1000},
            "turns of the three measurements; the fastest of each counts");
  app.add("--seconds", options->seconds, "of each of the three measurements, over all rounds")
      .within(0.001, 1e6)
      .shows_default();
  app.add("--gpu-rate", options->gpu_rate, "images/s that a GPU trains")
      .within(0.001, 1e9)
      .shows_default();
  app.add_flag("--validation", options->validation, "prepare rows as for validation");
  app.add_flag("--normalise", options->normalise,
               "also turn the batch into floats, as a training step does");
  app.add_flag("--loader-only", options->loader_only,
               "measure only the loader: no kinds of work, and no single worker in addition");
  add_json_file(app, options->json, "write the figures to this file");
  options->run.add_to(app);
  return {app, [options](Launch&) { return run(*options); },
          [options](const Supposed& supposed) {
            options->run.config();
            if (supposed.shows(options->path))
              train::require_files(options->path, train::PackedPart::training);
          }};
}

}  // namespace lockstep::app
