#include "app/bench/bench_data.hpp"

#include <algorithm>
#include <new>
#include <thread>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "app/cli/count_option.hpp"
#include "app/cli/key_option.hpp"
#include "app/start/launch.hpp"
#include "app/status.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/base/json_text.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/data/normalise.hpp"
#include "lockstep/data/row_reader.hpp"
#include "lockstep/train/packed_sets.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

struct DataBenchOptions {
  std::string path, json;
  config::Config config;
  std::size_t batch = 64, workers = 0, slots = 4;
  double seconds = 4, gpu_rate = 6500;
  bool validation = false, normalise = false, loader_only = false;
};

/// Memory for a loader that no device reads from.
class HostMemory final : public device::Device {
 public:
  std::string name() const override { return "host memory"; }
  device::Stream& compute() override { throw Error("host memory computes nothing"); }
  device::PinnedBuffer allocate_pinned(std::size_t bytes) override {
    constexpr std::align_val_t page{4096};
    auto* data = static_cast<std::byte*>(::operator new(bytes, page));
    return {data, bytes, [=](std::byte* memory) { ::operator delete(memory, page); }};
  }
};

data::SamplerSpec sampling(const DataBenchOptions& options, const data::DataSet& rows) {
  config::Config config = options.config;
  config.batch = std::min(options.batch, rows.info().rows);
  data::SamplerSpec order = train::training_order(config, rows, 1);
  if (options.validation) order.shuffle = data::Shuffle::none;
  return order;
}

/// One stage of the pipeline, on one core.
struct Stage {
  const char* name;
  double seconds = 0, bytes = 0;  ///< of all rows; bytes that it passes on
};

/// Times the stages for as many rows as fit into the time. What else the loader does (claim rows,
/// copy labels, mix) is "assemble": a row's share of a whole loader, minus the other stages.
std::vector<Stage> time_stages(const DataBenchOptions& options, const data::DataSet& rows,
                               const data::AugmentSpec& how, std::size_t& count) {
  data::RowReader reader(rows, how);
  data::StageTimes times;
  const data::Sampler sampler(sampling(options, rows));
  std::vector<std::uint8_t> image(reader.row_bytes()), stored;
  std::vector<float> floats(image.size());
  double crc_s = 0, normalise_s = 0, stored_bytes = 0;
  std::uint32_t sum = 0;
  count = 0;
  const double end = now_s() + options.seconds;
  for (bool warm = false; now_s() < end || count == 0; ++count) {
    const std::size_t position = count % rows.info().rows;
    if (position == 0 && count > 0 && !warm) {  // the first epoch fills the caches
      warm = true;
      times = {};
      crc_s = normalise_s = stored_bytes = 0;
      count = 0;
    }
    const std::size_t row = sampler.row(count / rows.info().rows, position);
    reader.measure(&times);
    reader.read(count / rows.info().rows, row, image);
    double mark = now_s();
    data::normalise(rows.info(), image, floats.data());
    normalise_s += now_s() - mark;
    stored.resize(std::max<std::size_t>(stored.size(), rows.row_bytes(row)));
    mark = now_s();
    sum = crc32c(stored.data(), rows.row_bytes(row), sum);
    crc_s += now_s() - mark;
    stored_bytes += static_cast<double>(rows.row_bytes(row));
  }
  const double made = static_cast<double>(count) * static_cast<double>(image.size());
  return {{"read", std::max(0.0, times.read_s - crc_s), stored_bytes},
          {"crc", crc_s, stored_bytes},
          {"decode", times.decode_s, stored_bytes},
          {"crop_resize_flip", times.shape_s, made},
          {"jitter", times.colour_s, made},
          {"normalise", normalise_s, made}};
}

bool counts(const DataBenchOptions& options, const std::string& stage) {
  return stage != "normalise" || options.normalise;  // otherwise the trainer does it
}

/// One row's time in each stage on one core. `one`: the loader's rows per second with one worker.
Json describe(const DataBenchOptions& options, const std::vector<Stage>& stages, std::size_t count,
              double one) {
  Json all;
  double known_s = 0, made = 0;
  const auto add = [&](const Stage& stage, double rows) {
    if (stage.seconds <= 0) return;
    all[stage.name] = {{"microseconds", stage.seconds / rows * 1e6},
                       {"rows_per_s", rows / stage.seconds},
                       {"bytes_per_s", stage.bytes / stage.seconds}};
  };
  const auto rows = static_cast<double>(count);
  for (const Stage& stage : stages) {
    // Clocks take time: a stage that is not used is not shown.
    if (stage.seconds / rows < 0.1e-6) continue;
    add(stage, rows);
    if (counts(options, stage.name)) known_s += stage.seconds / rows;
    made = stage.bytes / rows;
  }
  add({"assemble", 1 / one - known_s, made}, 1);
  return all;
}

/// Rows per second of the whole loader.
double run_loader(const DataBenchOptions& options, const data::DataSet& rows,
                  const data::AugmentSpec& how, std::size_t workers) {
  HostMemory memory;
  data::LoaderSpec spec;
  spec.sampler = sampling(options, rows);
  spec.augment = how;
  if (!options.validation) spec.mix = train::training_mix(options.config);
  spec.workers = workers;
  spec.slots = options.slots;
  spec.readahead = options.config.data.readahead;
  spec.epochs = 1 << 20;
  data::Loader loader(rows, spec, memory);
  const std::size_t image = data::delivered(rows.info(), how, options.path).row_bytes();
  std::vector<float> floats(image);
  const auto take = [&] {
    const data::Batch batch = loader.next();
    for (std::size_t i = 0; options.normalise && i < batch.rows; ++i)
      data::normalise(rows.info(), {batch.images + i * image, image}, floats.data());
    loader.release(batch);
    return batch.rows;
  };
  // Now the ring is full, and the threads have what they need.
  for (std::size_t i = 0; i < 2 * options.slots; ++i) take();
  std::size_t done = 0;
  const double start = now_s();
  while (now_s() - start < options.seconds) done += take();
  return static_cast<double>(done) / (now_s() - start);
}

Json measure(const DataBenchOptions& options) {
  data::DataSet rows(options.path, train::external_spec(options.config));
  if (!options.config.data.stage.empty()) {
    const data::RowRange all{0, rows.info().rows};
    const data::Staging staging = rows.stage(options.config.data.stage, {&all, 1});
    require(staging.fits,
            fmt::format("the data set does not fit into {}: it needs {}, there is room for {}",
                        options.config.data.stage, human_bytes(static_cast<double>(staging.bytes)),
                        human_bytes(static_cast<double>(staging.available))));
  }
  if (options.config.data.read == config::ReadBy::mmap) rows.map();
  data::AugmentSpec how = train::training_augment(options.config, rows.info());
  data::DataSetInfo input = data::delivered(rows.info(), how, options.path);
  if (options.validation) how = train::evaluation_augment(options.config, input, rows.info());
  input = data::delivered(rows.info(), how, options.path);
  const std::size_t workers =
      options.workers > 0 ? options.workers : std::max(1u, std::thread::hardware_concurrency());

  std::uint64_t bytes = 0;
  for (std::size_t row = 0; row < input.rows; ++row) bytes += rows.row_bytes(row);
  std::size_t timed = 0;
  std::vector<Stage> stages;
  if (!options.loader_only) stages = time_stages(options, rows, how, timed);
  const double all = run_loader(options, rows, how, workers);
  const double one = workers == 1 || options.loader_only ? all : run_loader(options, rows, how, 1);
  return {{"path", options.path},
          {"rows", input.rows},
          {"stored_bytes", static_cast<double>(bytes) / static_cast<double>(input.rows)},
          {"delivered", {input.height, input.width, input.channels}},
          {"stages", stages.empty() ? Json::object() : describe(options, stages, timed, one)},
          {"one_worker_images_per_s", one},
          {"workers", workers},
          {"images_per_s", all},
          {"images_per_s_and_core", all / static_cast<double>(workers)},
          {"gpu_images_per_s", options.gpu_rate},
          {"gpus_fed", all / options.gpu_rate},
          {"peak_memory_bytes", peak_resident_bytes()}};
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
    log::info("  stage, on one core       us a row      rows/s       per second");
  for (const auto& [stage, figures] : json["stages"].items()) {
    const double us = figures["microseconds"], bytes = figures["bytes_per_s"];
    log::info(fmt::format("  {:<20}{:13.2f}{:12.0f}{:>17}{}", stage, us,
                          figures["rows_per_s"].get<double>(), human_bytes(bytes),
                          counts(options, stage) ? "" : "  (the trainer's)"));
    if (!counts(options, stage)) continue;
    sum += us;
    if (us > most) most = us, slowest = stage;
  }
  if (sum > 0)
    log::info(fmt::format("  together {:.2f} us; {} is the limit, {:.0f} % of it", sum, slowest,
                          100 * most / sum));
  const double one = json["one_worker_images_per_s"];
  if (json["workers"] == 1 || !options.loader_only)
    log::info(fmt::format("loader, 1 worker: {:.0f} images/s", one));
  if (json["workers"] != 1)
    log::info(fmt::format("loader, {} workers: {:.0f} images/s ({:.2f} times one)",
                          json["workers"].dump(), rate, rate / one));
  const double each = json["images_per_s_and_core"];
  const double cores = options.gpu_rate / each;
  log::info(
      fmt::format("{}/s from files, {}/s into batches, {:.0f} images/s per core; enough for {:.2f} "
                  "GPUs that train {:.0f} images/s each (one such GPU needs {:.1f} cores)",
                  human_bytes(rate * stored), human_bytes(rate * delivered), each,
                  rate / options.gpu_rate, options.gpu_rate, cores));
}

int run(const DataBenchOptions& options) {
  const int world = rank_by_environment().world;
  require(
      world == 1,
      fmt::format(
          "bench data measures one process, but {} were started: start it without mpirun or srun",
          world));
  const Json json = measure(options);
  report(options, json);
  if (!options.json.empty()) write_report(options.json, json_text(json, 2) + "\n");
  return status_done;
}

}  // namespace

Command add_bench_data(Arguments bench) {
  auto options = std::make_shared<DataBenchOptions>();
  Arguments app = bench.add_command(
      "data", "The input pipeline alone: each stage on one core, then the loader");
  app.add("path", options->path, "a shard or a folder of shards").required();
  for (const config::ConfigKey& key : config::config_keys()) {
    if (key.name != "seed" && !key.name.starts_with("data.")) continue;
    if (key.name == "data.train" || key.name == "data.val" || key.name == "data.workers" ||
        key.name == "data.slots" || key.name == "data.keep-last")
      continue;
    add_key(app, key, options->config);
  }
  add_count(app, "--batch", options->batch, a_batch, "rows of a batch");
  add_count(app, "--data.workers,--workers", options->workers, threads_or_all,
            "threads; 0: one for each allowed processor");
  add_count(app, "--data.slots,--slots", options->slots, {1, config::most_threads},
            "batches prepared ahead");
  app.add("--seconds", options->seconds, "of each of the three measurements")
      .within(0.001, 1e6)
      .shows_default();
  app.add("--gpu-rate", options->gpu_rate, "images/s that a GPU trains")
      .within(0.001, 1e9)
      .shows_default();
  app.add_flag("--validation", options->validation, "prepare rows as for validation");
  app.add_flag("--normalise", options->normalise,
               "also turn the batch into floats, as a training step does");
  app.add_flag("--loader-only", options->loader_only,
               "measure only the loader: no stages, and no single worker in addition");
  app.add("--json", options->json, "write the figures to this file");
  return {app, [options](Launch&) {
            using train::PackedPart;
            options->path = train::packed_set(
                options->path, options->validation ? PackedPart::validation : PackedPart::training);
            return run(*options);
          }};
}

}  // namespace lockstep::app
