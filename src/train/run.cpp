#include "lockstep/train/run.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/build_id.hpp"
#include "lockstep/base/cgroup.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/agreement.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/observe/report.hpp"
#include "lockstep/reduce/tree.hpp"
#include "lockstep/train/agreement.hpp"
#include "lockstep/train/decide/packed_sets.hpp"
#include "lockstep/train/prepared_run.hpp"
#include "lockstep/train/specs.hpp"
#include "lockstep/train/trainer.hpp"
#include "train/decide/decide.hpp"
#include "train/files/first_weights.hpp"
#include "train/files/resume.hpp"
#include "train/files/run_files.hpp"
#include "train/loop/run_loop.hpp"
#include "train/pipeline/pipeline.hpp"
#include "train/step_trace.hpp"

namespace lockstep::train {
namespace {

reduce::SavedState saved_exchange(const ResumePoint& point) {
  std::vector<reduce::StatePart> parts;
  for (const model::ExchangePart& part : model::list_exchange_parts(point.checkpoint))
    parts.push_back({part.name, part.bytes});
  return {model::list_exchange_state(point.checkpoint),
          [&](const auto& name) { return model::read_exchange_state(point.checkpoint, name); },
          std::move(parts),
          [&](const auto& name) {
            auto part = std::make_shared<model::ExchangePartReader>(point.checkpoint, name);
            return [part](std::span<std::byte> to) { part->read(to); };
          }};
}

/// Loads the checkpoint's state into the trainer, and its progress into `start`.
void resume_from_checkpoint(RunStart& start, const RunParts& parts) {
  const ResumePoint& point = *start.resume;
  Trainer& trainer = parts.trainer;
  start.changes = judge_resume(point, parts.config,
                               {.backend = parts.backend.description(),
                                .build = build_id(),
                                .world = parts.spec.grid.ranks(),
                                .replicas = parts.spec.grid.replicas.count,
                                .data = parts.data.input(),
                                .placement = parts.spec.nodes.placement(),
                                .on_gpus = parts.backend.name() == "cuda"});
  start.rate_jump = say_rate_jump(point, parts.config, parts.data.steps_per_epoch());
  comm::together(parts.control, "loading the checkpoint", [&] {
    adopt_part(parts.whole, trainer.parameters(), [&](backend::Parameters& all) {
      model::load_tensors(point.checkpoint, all, true, point.verified);
    });
    const std::string left_out =
        reduce::load_state(trainer.exchange(), point.header.exchange, saved_exchange(point),
                           point.checkpoint.string(), point.header.progress.step);
    if (!left_out.empty()) start.changes.push_back(left_out);
  });
  start.progress = point.header.progress;
  trainer.continue_after(start.progress.step);
}

/// What the trainer begins with: a checkpoint's state, a file's weights, or what the seed gave it.
void begin_state(RunStart& start, const RunParts& parts) {
  const config::Config& config = parts.config;
  const bool is_root = parts.control.rank() == 0;
  if (start.resume) return resume_from_checkpoint(start, parts);
  if (!config.init.empty()) {
    comm::together(parts.control, "loading the first weights", [&] {
      adopt_part(parts.whole, parts.trainer.parameters(), [&](backend::Parameters& all) {
        begin_with_weights(config, parts.data.input(), parts.whole.network, all, is_root);
      });
    });
    return;
  }
  if (config.freeze != nn::Freeze::none && is_root)
    log::warn(
        fmt::format("freeze = {}: these layers keep random weights; --init FILE begins with "
                    "trained ones",
                    choice_name(config.freeze)));
}

void log_resume(const RunStart& start) {
  if (!start.changes.empty())
    log::warn(fmt::format("the result may differ from an uninterrupted run's: {}",
                          join(start.changes, ", ")));
  if (!start.rate_jump.empty()) log::warn(start.rate_jump);
  log::info(fmt::format("resuming from {}: step {}, epoch {}", start.resume->checkpoint.string(),
                        start.progress.step, start.progress.epoch + 1));
}

std::size_t learned_numbers(const nn::Network& network) {
  std::size_t count = 0;
  for (const nn::Tensor& tensor : nn::tensors(network))
    if (nn::learned(tensor.role)) count += tensor.count();
  return count;
}

/// Those numbers of them that no frozen layer has.
std::size_t learning_numbers(const nn::Network& network) {
  return learned_numbers(nn::trained_part(network));
}

/// What a run that freezes layers still trains, and what its ranks then sum, where that is exact.
std::string describe_frozen(const RunParts& parts) {
  const std::size_t learning = learning_numbers(parts.whole.network);
  std::size_t reduced = 0;
  const reduce::Exchange& exchange = parts.trainer.exchange();
  for (const reduce::Bucket& bucket : exchange.buckets()) reduced += bucket.size;
  std::string text =
      fmt::format("frozen up to {}: {} of {} parameters learn", choice_name(parts.config.freeze),
                  learning, learned_numbers(parts.whole.network));
  if (exchange.name() == choice_name(reduce::ExchangeKind::exact))
    text += "; a step reduces " + human_bytes(static_cast<double>(reduced * sizeof(float)));
  return text;
}

/// "2 ranks x 3 micro-batches x 64 rows", or "8 shards x 16 rows".
std::string describe_cut(const config::Config& config, int replicas, std::size_t most) {
  const std::size_t sharers = config::sharers(config, replicas);
  const std::size_t parts =
      config.shards > 0 ? 1 : plan_micro_batches(config.batch, replicas, 0, most).size();
  const std::string rows = config.batch == sharers * parts * most
                               ? std::to_string(most)
                               : fmt::format("{} or {}", most, most - 1);
  if (config.shards > 0) return fmt::format("{} x {} rows", counted(sharers, "shard"), rows);
  return fmt::format("{} x {} x {} rows",
                     counted(sharers, config.stages * config.tiles > 1 ? "replica" : "rank"),
                     counted(parts, "micro-batch"), rows);
}

/// "4 tiles of each image: a rank has 2 of the 8 lines of the smallest maps".
std::string describe_tiles(std::size_t tiles, const nn::Network& network) {
  const std::size_t lines = nn::most_tiles(network);
  const std::string each = lines % tiles == 0
                               ? std::to_string(lines / tiles)
                               : fmt::format("{} or {}", lines / tiles, lines / tiles + 1);
  return fmt::format("{} tiles of each image: a rank has {} of the {} of the smallest maps", tiles,
                     each, counted(lines, "line"));
}

/// What shards cost on that many ranks.
std::string describe_shards(const config::Config& config, int replicas,
                            const backend::ProgramSpec& program, std::size_t threads) {
  const auto ranks = static_cast<std::size_t>(replicas);
  const reduce::ShardCost cost = reduce::shard_cost(config.shards, ranks);
  std::string text =
      fmt::format("{} on {}: the same bits on any number of ranks up to {}",
                  counted(config.shards, "shard"), counted(ranks, "rank"), config.shards);
  if (cost.time > 1)
    text += fmt::format("; a step takes {:.2f} times an even share, since the busiest rank has {}",
                        cost.time, counted(cost.most, "shard"));
  if (cost.bytes > 1)
    text += fmt::format("; {:.2f} times the bytes of an all-reduce travel", cost.bytes);
  text += fmt::format("; {} for their sums; {} a shard",
                      human_bytes(static_cast<double>(program.exchange_bytes)),
                      counted(program.lanes, "lane"));
  if (threads > program.lanes)
    text +=
        fmt::format(", so {} idle", threads - program.lanes == 1
                                        ? "a thread is"
                                        : fmt::format("{} threads are", threads - program.lanes));
  return text;
}

/// What the devices of all ranks are, each once; only on rank 0. Collective.
std::vector<std::string> gather_devices(const backend::Backend& backend, comm::Control& control) {
  std::vector<std::string> devices;
  for (const std::string& one : control.gather_at_root(backend.description(), "devices"))
    if (std::find(devices.begin(), devices.end(), one) == devices.end()) devices.push_back(one);
  return devices;
}

/// Collective; complete on rank 0, but for the run's id.
observe::StartRecord start_record(const RunParts& parts, const RunStart& start) {
  const RunSpec& spec = parts.spec;
  const config::Config& config = parts.config;
  const RunData& data = parts.data;
  observe::StartRecord record;
  record.from_step = start.progress.step;
  if (start.resume) record.resumed_from = start.resume->checkpoint.string();
  record.build = build_id();
  record.command = spec.command;
  std::error_code gone;
  record.directory = std::filesystem::current_path(gone).string();
  record.job = spec.allocation.job;
  record.ranks = static_cast<std::uint64_t>(spec.grid.ranks());
  record.cores = parts.ledger.hardware().cores;
  record.gpus = parts.ledger.hardware().gpus;
  for (std::size_t node = 0; node < spec.nodes.count(); ++node)
    record.hosts.push_back(spec.nodes.name_of(node));
  record.devices = gather_devices(parts.backend, parts.control);
  record.model = config.model;
  record.precision = to_string(config.precision);
  record.parameters = learned_numbers(parts.whole.network);
  record.learning = learning_numbers(parts.whole.network);
  record.batch = config.batch;
  record.step_memory_bytes = parts.trainer.memory().activations;
  record.data = config.data.train;
  record.validation_data = config.data.val;
  record.rows = data.input().rows;
  if (data.validation()) record.validation_rows = data.validation()->info().rows;
  record.classes = data.input().classes.size();
  record.image = std::min(data.input().height, data.input().width);
  record.epochs = config.epochs;
  record.steps_per_epoch = data.steps_per_epoch();
  return record;
}

/// "2 ranks on one node"
std::string describe_ranks(int world, const comm::Nodes& nodes) {
  return fmt::format("{} on {}", counted(static_cast<std::size_t>(world), "rank"),
                     nodes.count() == 1 ? "one node" : fmt::format("{} nodes", nodes.count()));
}

std::string describe_dropped(std::uint64_t rows) {
  if (rows == 0) return "";
  return fmt::format(", its last {} dropped (--data.keep-last keeps {})",
                     rows == 1 ? "row is" : fmt::format("{} rows are", rows),
                     rows == 1 ? "it" : "them");
}

/// How large checkpoints are where each rank or group has its own state.
std::string describe_saved(const RunParts& parts) {
  const RunSpec& spec = parts.spec;
  const auto [each, common] = exchange_state_bytes(parts.config, parts.trainer.network());
  if (each == 0) return "";
  const bool by_node = has_groups_by_node(parts.config);
  const std::size_t count =
      by_node ? spec.nodes.count() : static_cast<std::size_t>(spec.grid.replicas.count);
  const std::size_t tensors = model::checkpoint_bytes({}, parts.trainer.parameters());
  const auto human = [](std::size_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  return fmt::format("a checkpoint takes up to {}: {} for each of {}, and {}",
                     human(tensors + common + count * each), human(each),
                     counted(count, by_node ? "node" : "rank"), human(tensors + common));
}

/// What is unusual about the images: ", 12 channels of uint16"; else empty.
std::string describe_elements(const data::DataSetInfo& input) {
  if (input.element == data::Element::u8 && input.channels <= 4) return "";
  return fmt::format(", {} of {},", counted(input.channels, "channel"), choice_name(input.element));
}

/// "10 classes", or what else is learned, and how.
std::string describe_outputs(const data::DataSetInfo& input) {
  const std::size_t outputs = input.classes.size();
  if (input.task == data::Task::labels)
    return counted(outputs, "label") + " a row (binary cross entropy of each)";
  if (input.task == data::Task::values)
    return counted(outputs, "value") + " a row (in deviations from the mean)";
  return counted(outputs, "class");
}

/// Says a cgroup's limit of memory, which ends a process that needs more without a word.
void log_memory_limit(const RunParts& parts, const backend::MemoryPlan& memory) {
  constexpr std::size_t number_bytes = 3 * sizeof(float);  // weight, gradient, momentum
  const auto limit = look_at_group().memory_bytes;
  if (!limit || parts.backend.name() != "cpu") return;
  const std::size_t ranks = parts.spec.nodes.local_size(0);
  const std::size_t needed = ranks * (memory.activations + memory.workspace +
                                      number_bytes * learned_numbers(parts.whole.network));
  const std::string what =
      fmt::format("a cgroup limits memory to {}; steps of {} need {} at least",
                  human_bytes(static_cast<double>(*limit)), counted(ranks, "rank"),
                  human_bytes(static_cast<double>(needed)));
  if (needed <= *limit) return log::info(what);
  log::warn(what +
            ": the system will end them. Take fewer rows (--batch), or more parts of them "
            "(--accumulate)");
}

/// Logs what is about to be trained, on what and how: it fits on a screen.
void log_run(const RunParts& parts) {
  const RunSpec& spec = parts.spec;
  const config::Config& config = parts.config;
  const RunData& data = parts.data;
  const Trainer& trainer = parts.trainer;
  const int replicas = spec.grid.replicas.count;
  const data::DataSetInfo& input = data.input();
  const data::DataSet* validation = data.validation();
  const backend::MemoryPlan memory = trainer.memory();
  const int columns = log::columns();
  log::text(observe::summarise(spec.config, columns > 0 ? static_cast<std::size_t>(columns) : 100));
  log::info(fmt::format("training on {} of {} x {} pixels{} in {}, validating on {}",
                        counted(input.rows, "row"), input.height, input.width,
                        describe_elements(input), describe_outputs(input),
                        validation ? std::to_string(validation->info().rows) : "none"));
  log::info(fmt::format("{}: {} parameters, {}; {}, each on {}", config.model,
                        learned_numbers(parts.whole.network), to_string(config.precision),
                        describe_ranks(spec.grid.ranks(), spec.nodes),
                        parts.backend.description()));
  log::info(fmt::format("batch {} = {}; {} an epoch{}", config.batch,
                        describe_cut(config, replicas, trainer.program_spec().batch),
                        counted(data.steps_per_epoch(), "step"),
                        describe_dropped(data.dropped_rows())));
  log::info(fmt::format("memory of a rank's step: {} ({} without reuse); gradients in {}",
                        human_bytes(static_cast<double>(memory.activations)),
                        human_bytes(static_cast<double>(memory.without_reuse)),
                        counted(trainer.exchange().buckets().size(), "bucket")));
  log_memory_limit(parts, memory);
  if (config.shards > 0)
    log::info(describe_shards(config, replicas, trainer.program_spec(), parts.backend.threads()));
  if (const std::string stages = parts.whole.pipeline.describe(parts.whole.network);
      !stages.empty())
    log::info(stages);
  if (config.tiles > 1) log::info(describe_tiles(config.tiles, parts.whole.network));
  if (config.freeze != nn::Freeze::none) log::info(describe_frozen(parts));
  if (const std::string note = trainer.exchange().note(); !note.empty())
    log::info(fmt::format("exchange '{}': {}", trainer.exchange().name(), note));
  if (continues_alone(spec.config, replicas, spec.nodes))
    log::info(
        fmt::format("exchange '{}' in place of '{}', which is between ranks or groups, and here is "
                    "one: with more, the run continues with that",
                    trainer.exchange().name(), choice_name(exchange_of(spec.config))));
  if (const std::string saves = describe_saved(parts); !saves.empty()) log::info(saves);
  if (memory.made_again > 0)
    log::info(fmt::format("recompute: backward makes {:.0f} % of forward again",
                          100 * memory.made_again));
  if (!spec.dry_run)
    log::info(fmt::format("files of this run, with all keys: {}",
                          parts.files.directory().root().string()));
}

/// How many copies of the state may be in memory while steps continue: one that is written, and a
/// best one that waits. Only rank 0 makes any.
std::size_t choose_copies(const RunParts& parts) {
  const config::Config& config = parts.config;
  Trainer& trainer = parts.trainer;
  constexpr std::size_t most = 2;
  if (!config.checkpoint.background) return 0;
  const std::size_t bytes = model::checkpoint_bytes({}, trainer.parameters());
  const std::size_t copies =
      copies_within(config.recompute, trainer.memory(), trainer.parameters().layout(), bytes, most);
  if (copies == 0 && parts.control.rank() == 0)
    log::info(
        fmt::format("steps wait while a checkpoint is written: memory-limit = {} leaves no "
                    "room for a copy of the state, which takes {} more",
                    config.memory_limit, human_bytes(static_cast<double>(bytes))));
  return copies;
}

/// A run that ends before it was to stop.
void warn_of_late_stop(const config::Config& config, const RunData& data) {
  const std::uint64_t all = config.epochs * data.steps_per_epoch();
  if (config.stop_after > all)
    log::warn(fmt::format("stop-after = {}: the run ends with step {} and does not stop before",
                          config.stop_after, all));
  if (config.stop_after_epoch > config.epochs)
    log::warn(
        fmt::format("stop-after-epoch = {}: the run ends with epoch {} and does not stop before",
                    config.stop_after_epoch, config.epochs));
}

/// How far this start goes if nothing stops it.
std::uint64_t planned_steps(const config::Config& config, const RunData& data) {
  std::uint64_t steps = config.epochs * data.steps_per_epoch();
  if (config.stop_after > 0) steps = std::min(steps, config.stop_after);
  if (config.stop_after_epoch > 0)
    steps = std::min(steps, config.stop_after_epoch * data.steps_per_epoch());
  return steps;
}

}  // namespace

Outcome run_training(const RunSpec& spec, backend::Backend& backend,
                     comm::Communicator& communicator, comm::Control& control) {
  check(spec.grid.ranks() == control.world(), "a place in the grid for each rank");
  const bool is_root = control.rank() == 0;
  require_same_options(spec.config, control);
  RunFiles files(spec, control);
  RunStart start;
  start.resume = find_resume_point(spec.config, files.directory(), control);
  files.require_free(start);
  PreparedRun prepared(spec, backend, communicator, control, start.resume);
  RunData& data = prepared.data();
  const config::Config& config = prepared.config();
  TrainerSpec trainer_spec = prepared.trainer_spec();
  trainer_spec.make_exchange = spec.make_exchange;
  StepTrace trace(spec, prepared.backend().device(), control);
  Ledger ledger(spec, control);
  Trainer trainer(trainer_spec, prepared.backend(), trace.watch(prepared.reducing()),
                  &prepared.pipeline());
  const RunParts parts{.spec = spec,
                       .config = config,
                       .backend = prepared.backend(),
                       .communicator = prepared.reducing(),
                       .control = control,
                       .files = files,
                       .data = data,
                       .trainer = trainer,
                       .ledger = ledger,
                       .whole = prepared.whole()};
  // An epoch's last batch may have the largest micro-batch.
  if (config.memory_limit > 0) trainer.prepare(data.global_rows(data.steps_per_epoch() - 1));
  require_same_form(trainer.parameters(), prepared.backend(), prepared.pipeline(), control);
  begin_state(start, parts);
  files.set_copies(choose_copies(parts));
  trainer.audit(control, start.progress.step);
  if (start.progress.epoch >= config.epochs) {
    log::info(fmt::format("nothing left to do: all {} are done", counted(config.epochs, "epoch")));
    return Outcome::finished;
  }
  if (spec.dry_run) {
    if (start.resume && is_root) log_resume(start);
    if (is_root) log_run(parts);
    try_steps(parts);
    return Outcome::finished;
  }
  // Everything that could prevent the start is checked: from here on the run writes.
  data.copy_to_nodes();
  files.claim(start);
  if (start.resume && is_root) log_resume(start);
  start.record = start_record(parts, start);
  files.begin(start, prepared.decisions(), spec.binding_report({}));
  if (is_root) log_run(parts);
  if (is_root) warn_of_late_stop(config, data);
  data.start_loader(start.progress, backend.device());
  trace.begin(files.directory().root(), start.progress.step, planned_steps(config, data));
  const Outcome outcome = RunLoop(parts, start.progress).run();
  trace.end();
  return outcome;
}

}  // namespace lockstep::train
