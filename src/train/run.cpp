#include "lockstep/train/run.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "lockstep/base/build_id.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/base/join.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/data/row_reader.hpp"
#include "lockstep/data/workers.hpp"
#include "lockstep/train/agreement.hpp"
#include "lockstep/train/specs.hpp"
#include "train/run_impl.hpp"

namespace lockstep::train {
namespace {

// For the end of a step, and for a file system that tells other nodes late.
constexpr double patience_with_former_s = 60;

std::size_t learned_numbers(const nn::Network& network) {
  std::size_t count = 0;
  for (const nn::Tensor& tensor : nn::tensors(network))
    if (nn::learned(tensor.role)) count += tensor.count();
  return count;
}

/// The nodes of all ranks by the names of their hosts, in order of first appearance.
std::vector<int> numbered_nodes(const std::vector<std::string>& hosts) {
  std::vector<std::string> seen;
  std::vector<int> nodes;
  for (const std::string& host : hosts) {
    auto found = std::find(seen.begin(), seen.end(), host);
    if (found == seen.end()) found = seen.insert(seen.end(), host);
    nodes.push_back(static_cast<int>(found - seen.begin()));
  }
  return nodes;
}

}  // namespace

Run::Run(RunSpec spec, Backend& backend, comm::Communicator& communicator, comm::Control& control)
    : impl_(std::make_unique<Impl>(std::move(spec), backend, communicator, control)) {}
Run::~Run() = default;

Outcome Run::train() {
  impl_->begin();
  return impl_->loop();
}

Run::Impl::Impl(RunSpec spec_, Backend& backend_, comm::Communicator& communicator_,
                comm::Control& control_)
    : spec(std::move(spec_)),
      config(spec.config),
      backend(backend_),
      communicator(communicator_),
      control(control_),
      directory(config.out),
      checkpoints(directory.checkpoints(), config.checkpoint.keep) {
  require_same_options(config, control);
  if (speaker() && config.resume == "auto")
    relieved = relieve_former_start(directory, this_start(), patience_with_former_s);
  if (speaker()) found = checkpoints.newest_first();
  resume = find_resume_point(config, directory, control);
  if (speaker() && !same_run()) judge_directory();
  open_data();
  trainer.emplace(make_trainer_spec(config, input, control.world()), backend, communicator);
  if (resume) prepare_resume();
  audit();
}

/// Nothing is written over.
void Run::Impl::judge_directory() const {
  if (config.resume != "auto") return directory.require_unused();
  // A run that was killed before its first checkpoint is begun anew by the same command.
  directory.require_unfinished();
  require(found.empty(),
          fmt::format("{} holds no checkpoint that is whole, and nothing is written over: name "
                      "another as --resume, or choose another --out",
                      directory.checkpoints().string()));
}

void Run::Impl::open_data() {
  train_rows = std::make_unique<data::DataSet>(config.data.train, foreign_spec(config));
  require_channels(train_rows->info(), config.data.train);
  require_same_data(*train_rows, "data.train", control);
  augment = training_augment(config, train_rows->info());
  input = data::delivered(train_rows->info(), augment, config.data.train);
  const std::size_t side = std::min(input.height, input.width);
  for (const auto& [key, pixels] :
       {std::pair{"data.pad", config.data.pad}, std::pair{"data.cutout", config.data.cutout}})
    require(pixels < side, fmt::format("{} = {} must be smaller than the side of the images: {} "
                                       "has images of {} x {} pixels",
                                       key, pixels, config.data.train, input.height, input.width));
  if (!config.data.val.empty()) {
    val_rows =
        std::make_unique<data::DataSet>(config.data.val, foreign_spec(config, &train_rows->info()));
    require_same_data(*val_rows, "data.val", control);
    const data::AugmentSpec how = evaluation_augment(config, input, val_rows->info());
    require_alike(input, config.data.train, data::delivered(val_rows->info(), how, config.data.val),
                  config.data.val);
  }
  data::SamplerSpec order = training_order(config, *train_rows, control.world());
  order.rank = control.rank();
  if (order.shuffle == data::Shuffle::node)
    order.nodes = numbered_nodes(control.gather(spec.allocation.host, "nodes"));
  sampler.emplace(order);
  steps_per_epoch = sampler->batches();
  schedule = make_schedule(config, steps_per_epoch);
}

void Run::Impl::prepare_resume() {
  changes =
      judge_resume(*resume, config, {backend.description(), build_id(), control.world(), input});
  load_tensors(resume->checkpoint, trainer->parameters(), true);
  at = resume->header.progress;
  if (!speaker()) return;
  if (!changes.empty())
    log::warn(
        fmt::format("the result may differ from an uninterrupted run's: {}", join(changes, ", ")));
  log::info(fmt::format("going on from {}: step {}, epoch {}", resume->checkpoint.string(), at.step,
                        at.epoch + 1));
}

void Run::Impl::begin() {
  if (at.epoch >= config.epochs) return;
  stage_data();
  claim_directory();
  const std::string binding = spec.binding_report({});
  if (speaker()) {
    if (same_run())
      std::filesystem::remove(directory.summary());  // of an end that the run has left behind
    // A run that begins anew where another was killed before its first checkpoint sets its best
    // aside.
    const auto origin = resume ? std::filesystem::absolute(resume->checkpoint).parent_path()
                               : directory.checkpoints();
    checkpoints.go_on_from(at, CheckpointDirectory(origin, config.checkpoint.keep));
    write_text_atomically(directory.config(), saved_config());
    write_text_atomically(directory.binding(), binding);
    if (!spec.preflight.empty()) write_text_atomically(directory.preflight(), spec.preflight);
    metrics.emplace(directory.metrics(), same_run() ? resume->header.metrics_bytes : 0);
    if (!changes.empty()) {
      metrics->add(to_json(ResumeRecord{at.step, changes}));
      metrics->flush();
    }
    introduce();
  }
  start_loader();
}

void Run::Impl::claim_directory() {
  std::string claimed;
  if (speaker()) {
    const bool may_be_there = same_run() || config.resume == "auto";
    claimed = may_be_there ? config.out : claim(config.out);
    make_directories(RunDirectory(claimed).checkpoints());
    lock.emplace(RunDirectory(claimed), relieved);
  }
  spec.config.out = control.broadcast(claimed, "run directory");
  directory = RunDirectory(config.out);
  checkpoints = CheckpointDirectory(directory.checkpoints(), config.checkpoint.keep);
  comm::activity::set_directory(directory.root());
  // Before the lock was ours, another run may have come and gone.
  if (speaker())
    require(checkpoints.newest_first() == found,
            fmt::format("{}: another run has just written here; start again, or choose another "
                        "--out",
                        directory.root().string()));
  if (!speaker()) return;
  take_generation();
  if (control.world() > 1)
    reserve_room(comm::activity::post_mortem_room(directory.root()),
                 comm::activity::post_mortem_bytes(control.world()));
}

StartRecord Run::Impl::this_start() const {
  return {0, at.step, spec.allocation.host, spec.allocation.job};
}

/// A job that the scheduler starts again and again from the same step burns its hours for nothing.
void Run::Impl::take_generation() {
  const Allocation& allocation = spec.allocation;
  require(
      allocation.restarts < 2 || starts_without_progress(directory, allocation.job, at.step) < 2,
      fmt::format("{}: job {} was started twice from step {} and got no further; this third "
                  "start ends. See what stopped them (post-mortem.json, the job's output); a "
                  "new job goes on from there",
                  directory.root().string(), allocation.job, at.step));
  generation.emplace(directory, this_start());
}

std::string Run::Impl::saved_config() const {
  Config experiment = config;  // what one process was told about its own start and end stays out
  experiment.resume.clear();
  experiment.stop_after = 0;
  return to_toml(experiment);
}

void Run::Impl::start_loader() {
  data::LoaderSpec loading;
  loading.sampler = sampler->spec();
  loading.augment = augment;
  loading.mix = training_mix(config);
  loading.replace_bad_rows = config.data.on_bad_row == OnBadRow::skip;
  loading.slots = config.data.slots;
  loading.bind_worker = spec.bind_worker;
  loading.epoch = at.epoch;
  loading.batch = at.batch;
  if (loading.batch >= steps_per_epoch) {  // only its validation was still due
    ++loading.epoch;
    loading.batch = 0;
  }
  if (loading.epoch >= config.epochs) return;
  loading.epochs = config.epochs - loading.epoch;
  loading.readahead = config.data.readahead;
  if (config.data.read == ReadBy::mmap) train_rows->map();
  if (config.data.workers == 0) measure_workers(loading);
  loading.workers = loader_threads();
  loader.emplace(*train_rows, loading, backend.device());
}

std::size_t Run::Impl::loader_threads() const {
  if (config.data.workers != 0) return config.data.workers;
  return measured_workers != 0 ? measured_workers : std::clamp<std::size_t>(spec.spare_cores, 1, 8);
}

void Run::Impl::measure_workers(const data::LoaderSpec& loading) {
  const std::size_t most = std::clamp<std::size_t>(spec.spare_cores, 1, 64);
  const data::WorkerChoice choice = data::choose_workers(*train_rows, loading, most);
  measured_workers = choice.workers;
  if (speaker() && most > 1)
    log::info(
        fmt::format("data: {} thread(s) of {} that there is room for, {:.0f} rows/s a rank (one "
                    "alone {:.0f})",
                    choice.workers, most, choice.rows_per_s, choice.rows_per_s_of_one));
}

/// What this rank's node stages, behind '+', or why it does not, behind '-'; nothing where none was
/// asked for. The validation set comes second, whole, and only where it can be staged.
std::string Run::Impl::stage_data_of_node() {
  if (config.data.stage.empty()) return "";
  data::Staging staging = train_rows->stage(config.data.stage, sampler->rows_of_node());
  const auto bytes = [](std::uint64_t count) { return human_bytes(static_cast<double>(count)); };
  const char* which = "training";
  if (staging.fits && val_rows && val_rows->storage().contiguous) {
    const data::Run all{0, val_rows->info().rows};
    const data::Staging validation =
        val_rows->stage(config.data.stage, {&all, 1}, staging.bytes - staging.there);
    staging.bytes += validation.bytes;
    staging.there += validation.there;
    staging.fits = validation.fits;
    if (!validation.fits) {
      staging = validation;
      which = "validation";
    }
  }
  if (staging.fits)
    return fmt::format(
        "+data: {} are copied to {} on each node while they are first read ({} are there)",
        bytes(staging.bytes), config.data.stage, bytes(staging.there));
  return fmt::format(
      "-data.stage: {} of the {} set do not fit into {} on {}, where there is room for {}: "
      "they are read from where they are",
      bytes(staging.bytes - staging.there), which, config.data.stage, spec.allocation.host,
      bytes(staging.available));
}

/// Nodes may stage in different folders, and some not at all.
void Run::Impl::stage_data() {
  const std::vector<std::string> all = control.gather(stage_data_of_node(), "staging");
  if (!speaker()) return;
  const auto first = [&all](char mark) -> std::string {
    for (const std::string& text : all)
      if (text.starts_with(mark)) return text.substr(1);
    return "";
  };
  if (const std::string refused = first('-'); !refused.empty()) return log::warn(refused);
  if (const std::string staged = first('+'); !staged.empty()) log::info(staged);
}

void Run::Impl::introduce() const {
  const std::size_t most = trainer->program_spec().batch;
  const std::size_t parts = plan_micro_batches(config.batch, control.world(), 0, most).size();
  const bool even = config.batch == static_cast<std::size_t>(control.world()) * parts * most;
  log::info(fmt::format("{}: {} parameters, {} on {}", config.model,
                        learned_numbers(trainer->network()), to_string(config.precision),
                        backend.description()));
  log::info(fmt::format("training on {} rows of {} x {} pixels in {} classes, validating on {}",
                        input.rows, input.height, input.width, input.classes.size(),
                        val_rows ? std::to_string(val_rows->info().rows) : "none"));
  log::info(fmt::format(
      "batch {} = {} rank(s) x {} micro-batch(es) x {} rows; {} steps an epoch{}", config.batch,
      control.world(), parts, even ? std::to_string(most) : fmt::format("{} or {}", most, most - 1),
      steps_per_epoch,
      sampler->dropped() > 0 ? fmt::format(", its last {} rows are dropped (--data.keep-last keeps "
                                           "them)",
                                           sampler->dropped())
                             : ""));
  log::info(fmt::format("gradients: {} bucket(s); memory of a rank's step: {} ({} without reuse)",
                        trainer->buckets(),
                        human_bytes(static_cast<double>(trainer->memory().activations)),
                        human_bytes(static_cast<double>(trainer->memory().without_reuse))));
  log::info(summarise(config));
  log::info(fmt::format("files of this run: {}", directory.root().string()));
}

}  // namespace lockstep::train
