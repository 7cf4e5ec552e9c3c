#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "app/cli/command_line.hpp"
#include "app/commands.hpp"
#include "app/start/compute.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/share.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/loading/loader.hpp"
#include "lockstep/data/loading/row_reader.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/model/network_text.hpp"
#include "lockstep/model/weight_mean.hpp"
#include "lockstep/observe/report.hpp"
#include "lockstep/train/decide/packed_sets.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/scores.hpp"
#include "lockstep/train/specs.hpp"
#include "lockstep/train/statistics.hpp"

namespace lockstep::app {
namespace {

struct AverageOptions {
  std::vector<std::string> checkpoints;
  std::string data, out;
  std::size_t batches = 100, batch = 0, threads = 0;
  std::string backend = "auto";
  bool force = false;
};

/// Checks what can be checked before anything is read.
void require_writable(const AverageOptions& options) {
  std::vector<std::filesystem::path> read(options.checkpoints.begin(), options.checkpoints.end());
  require_new_report(options.out, read, options.force);
}

model::Model mean_of(const std::vector<std::string>& checkpoints) {
  model::WeightMean mean;
  for (const std::string& path : checkpoints) {
    mean.add(model::load(path, infer::describe_by_config), path);
  }
  return std::move(mean).take();
}

/// "top-1 61.20 %" of classes; of another task the scores by their names.
std::string scores_text(data::Task task, const backend::Metrics& of) {
  if (task == data::Task::classes)
    return fmt::format("top-1 {:.2f} %",
                       100 * static_cast<double>(of.top1) / static_cast<double>(of.rows));
  return observe::say_scores(train::step_scores(task, of.sums));
}

/// The rows that one program of the training saw at once.
std::size_t rows_at_once(const config::Config& config, const model::CheckpointHeader& header) {
  const auto replicas = static_cast<int>(std::max<std::uint64_t>(header.replicas, 1));
  return std::max<std::size_t>(
      1, config.batch / (config::sharers(config, replicas) * config.accumulate));
}

/// Training rows in the training's order, each batch lent until the next one.
class TrainingRows {
 public:
  TrainingRows(const data::DataSet& rows, const config::Config& config, std::size_t batch,
               const Compute& compute)
      : loader_(rows, loading(rows, config, batch, compute), compute.backend->device()) {}
  std::size_t batches() const { return loader_.sampler().batches(); }
  data::Batch next() {
    if (lent_) loader_.release(*lent_);
    lent_ = loader_.next();
    return *lent_;
  }

 private:
  static data::LoaderSpec loading(const data::DataSet& rows, const config::Config& config,
                                  std::size_t batch, const Compute& compute) {
    data::LoaderSpec spec;
    spec.sampler = {.rows = rows.info().rows,
                    .global_batch = batch,
                    .seed = config.seed,
                    .shuffle = data::Shuffle::global};
    spec.augment = train::training_augment(config, rows.info());
    spec.mix = train::training_mix(config);
    spec.workers = std::clamp<std::size_t>(compute.spare_cores, 1, 8);
    spec.bind_worker = compute.bind_worker;
    spec.epochs = 1;
    return spec;
  }

  data::Loader loader_;
  std::optional<data::Batch> lent_;
};

void check_options(const AverageOptions& options, const Supposed& supposed) {
  std::vector<std::string> paths;
  for (const std::string& path : options.checkpoints)
    if (supposed.shows(path)) paths.push_back(train::choose_checkpoint(path));
  if (!paths.empty()) mean_of(paths);
  if (supposed.shows(options.data)) train::require_files(options.data, train::PackedPart::training);
}

int average(Launch& launch, const AverageOptions& asked) {
  AverageOptions options = asked;
  for (std::string& path : options.checkpoints) path = train::choose_checkpoint(path);
  options.data = train::given_set(options.data, train::PackedPart::training);
  require_writable(options);
  const std::string& first = options.checkpoints.front();
  model::CheckpointHeader header = model::read_header(first);
  config::Config config = infer::settings_of(first, "");
  config.data.val_images = config.data.images;  // these are the training's images
  config.data.val_labels = config.data.labels;
  const model::Model mean = mean_of(options.checkpoints);
  const data::DataSetInfo input = infer::input_of(mean.about, nullptr);
  data::ExternalSpec reading = train::external_spec(config, &input);
  if (reading.held_out > 0) reading.part = data::RowsPart::kept;
  const data::DataSet rows(options.data, reading);
  train::say_what_is_read(rows, options.data);
  infer::require_alike(
      input, first,
      data::delivered(rows.info(), train::training_augment(config, rows.info()), options.data),
      options.data);

  const std::size_t wanted = options.batch > 0 ? options.batch : rows_at_once(config, header);
  const std::size_t batch = std::min<std::size_t>(wanted, rows.info().rows);
  const Compute compute = prepare_compute(
      launch, {.backend = decide_backend(launch, options.backend), .threads = options.threads});
  TrainingRows training(rows, config, batch, compute);
  train::StatisticsSpec spec{.program = infer::make_program_spec(config, mean.about.input, batch),
                             .batches = std::min(options.batches, training.batches()),
                             .next = [&] { return training.next(); }};
  spec.program.recompute = {};
  const train::WithStatistics result = infer::of_checkpoint(
      first, [&] { return train::reestimate_statistics(mean, *compute.backend, spec); });

  header.exchange = model::exact_exchange;
  header.network = model::network_text(mean.about.network);
  header.preparation = mean.about.preparation;
  model::write_checkpoint(options.out, header, *result.parameters);
  const auto seen = static_cast<double>(result.metrics.rows);
  log::info(fmt::format(
      "{}: the mean of {} of {}; running statistics from {} of {} rows, in training: loss {:.4f}, "
      "{}",
      options.out, counted(options.checkpoints.size(), "checkpoint"), mean.about.network.name,
      counted(spec.batches, "batch"), batch, result.metrics.loss / seen,
      scores_text(input.task, result.metrics)));
  return status_done;
}

}  // namespace

Command add_average(Arguments root) {
  auto options = std::make_shared<AverageOptions>();
  Arguments app = root.add_command(
      "average",
      "Average the weights of checkpoints of one network, with new statistics of its batch norms");
  app.add("checkpoints", options->checkpoints,
          "checkpoints, or folders of runs: their best.h5, or their newest")
      .required();
  app.add("--data", options->data, "the training set: a shard or a folder of shards").required();
  app.add("--out", options->out, "the checkpoint to write").called("FILE").required();
  add_count(app, "--batches", options->batches, {1, 1 << 24},
            "batches of training rows that the statistics are taken from, at most an epoch");
  add_count(
      app, "--batch", options->batch, {0, 1 << 20, true},
      "rows that are computed at once; auto: as many as a rank's in the first one's training");
  add_count(app, "--threads", options->threads, threads_or_all,
            "compute threads; auto: one for each core");
  add_backend(app, options->backend);
  app.add_flag("--force", options->force, "write over a file that is there");
  return {app,
          [options](Launch& launch) {
            return launch.leave_to_rank_0() ? status_done : average(launch, *options);
          },
          [options](const Supposed& supposed) { check_options(*options, supposed); }};
}

}  // namespace lockstep::app
