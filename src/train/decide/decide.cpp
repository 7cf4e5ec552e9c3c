// Why the order matters. The cost of an all-reduce, which decides about buckets, is that of the
// communicator that was decided on; and the memory of the processes is counted last, with all that
// the other decisions have left in it.

#include "train/decide/decide.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/two_level/two_level.hpp"
#include "lockstep/reduce/buckets.hpp"
#include "lockstep/train/decide/micro_batches.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::train {

namespace {

/// Those that run in this rank's process: for each size of its micro-batches, and of validations.
std::vector<backend::ProgramSpec> programs_of_run(const StartSetting& setting,
                                                  const backend::ProgramSpec& full) {
  const comm::GridAxis& replicas = setting.spec.grid.replicas;
  std::set<std::size_t, std::greater<>> sizes{full.batch};
  for (const std::uint64_t batch : {std::uint64_t{0}, setting.data.steps_per_epoch() - 1})
    for (const MicroBatch& part : plan_own(setting.data.global_rows(batch),
                                           setting.spec.config.shards, full.batch, replicas))
      if (part.rows > 0) sizes.insert(part.rows);
  std::vector<backend::ProgramSpec> programs;
  for (const std::size_t rows : sizes) programs.emplace_back(full).batch = rows;
  // The first stage validates with the whole network, whose weights it then has.
  if (!setting.data.validation() || full.whole) return programs;
  backend::ProgramSpec& validation = programs.emplace_back(full);
  validation.training = false;
  validation.tile = {};
  if (setting.spec.config.eval.batch != 0) validation.batch = setting.spec.config.eval.batch;
  return programs;
}

/// What this rank has of the network.
nn::Network own_part(const StartSetting& setting, const TrainerSpec& trainer) {
  const comm::GridAxis& stages = setting.spec.grid.stages;
  if (stages.count == 1) return trainer.network;
  const nn::WorkSpec work = stage_work(trainer.program, setting.backend);
  return nn::split(trainer.network,
                   nn::balanced_cuts(trainer.network, static_cast<std::size_t>(stages.count),
                                     work))[static_cast<std::size_t>(stages.index)];
}

/// Of shards, on which the bits depend: those of the run that is resumed, else this start's threads
/// on rank 0. Collective.
std::size_t choose_lanes(const StartSetting& setting) {
  const config::Config& config = setting.spec.config;
  if (config.shards == 0 || config.lanes > 0) return config.lanes;
  if (setting.resume)
    if (const std::size_t before = written_config(*setting.resume).lanes; before > 0) return before;
  const std::string threads =
      setting.control.broadcast(std::to_string(setting.backend.threads()), "lanes of shards");
  return whole_number<std::size_t>(threads).value();
}

}  // namespace

nn::WorkSpec stage_work(const backend::ProgramSpec& program, const backend::Backend& backend) {
  nn::WorkSpec work{.rows = program.batch, .value_bytes = backend::value_bytes(program.precision)};
  if (backend.name() == "clock") work.operations_a_byte = backend::operations_a_byte;
  return work;
}

Decided decide(const StartSetting& setting) {
  const RunSpec& spec = setting.spec;
  const config::Config::Comm& asked = spec.config.comm;
  const bool alone = continues_alone(spec.config, spec.grid.replicas.count, spec.nodes);
  const config::Config config = alone ? with_exact_exchange(spec.config) : spec.config;
  const GpuSteps gpu_steps = decide_gpu_steps(setting);
  TrainerSpec trainer = make_trainer_spec(gpu_steps.in(config), setting.data.input(),
                                          spec.grid.replicas.count, spec.grid.replicas.index);
  require_norm_values(
      nn::trained_part(trainer.network),
      {.full = setting.data.global_rows(0),
       .last = setting.data.global_rows(setting.data.steps_per_epoch() - 1),
       .replicas = static_cast<int>(config::sharers(spec.config, spec.grid.replicas.count)),
       .most = trainer.program.batch},
      spec.config);
  const comm::Nodes one_node;  // of a stage, whose ranks are some of each node's
  const ReductionSetting reduction{.flat = setting.communicator,
                                   .control = setting.control,
                                   .nodes = config.stages > 1 ? one_node : spec.nodes,
                                   .on_host = setting.backend.name() != "cuda",
                                   .resume = setting.resume};
  auto [all_reduce, two_level] = choose_all_reduce(asked, reduction);
  Decisions decisions{
      .backend = parse_choice<config::BackendChoice>(setting.backend.name(), "backend"),
      .data = setting.data.sets(),
      .choices = setting.data.choices(),
      .alone = alone,
      .all_reduce = all_reduce,
      .gpu_steps = gpu_steps};
  decisions.bucket_mb =
      choose_bucket_mb(asked, reduction, two_level ? *two_level : setting.communicator,
                       nn::trained_part(trainer.network));
  decisions.lanes = trainer.program.lanes = choose_lanes(setting);
  decisions.winograd = choose_winograd(setting, trainer.network, trainer.program);
  decisions.recompute = trainer.program.recompute;
  trainer.program.winograd = decisions.winograd;
  const bool has_stages = spec.grid.stages.count > 1;
  if (has_stages) trainer.program.whole = &trainer.network;
  count_process(decisions.recompute, own_part(setting, trainer),
                programs_of_run(setting, trainer.program), setting.backend,
                {.loader_bytes = setting.data.loader_bytes(),
                 .average = trainer.average.kept(),
                 .second_moments = optim::has_second_moments(trainer.formula),
                 .update_bytes = trainer.program.update_bytes,
                 .exchange_bytes = trainer.program.exchange_bytes,
                 .checkpoints = !spec.synthetic && spec.grid.stages.index == 0,
                 .gathered = has_stages ? &trainer.network : nullptr},
                setting.control);
  return {std::move(decisions), std::move(two_level)};
}

namespace {

// The smallest limit, which an error names, is then mostly the same in two starts.
constexpr std::size_t rounding = std::size_t{1} << 20;

// What a trainer takes in addition to its programs: 1 MB was seen.
constexpr std::size_t trainer_bytes = std::size_t{2} << 20;

// What only a whole run takes. Seen: 3 MB of HDF5's code, and up to 5 MB for the loader's threads,
// records and checkpoints.
constexpr std::size_t run_bytes = std::size_t{8} << 20;
// Buffers for messages, once ranks have reduced gradients: 2.5 MB were seen with MPI on one node.
constexpr std::size_t message_bytes = std::size_t{4} << 20;

/// Bytes of the largest tensor, which is made plain on its way into a checkpoint.
std::size_t largest_tensor(const std::vector<nn::Tensor>& tensors) {
  return nn::largest(tensors) * sizeof(float);
}

bool has_limit(const backend::Recompute& recompute) {
  return recompute.mode == backend::Recompute::Mode::automatic && recompute.memory_limit > 0;
}

}  // namespace

std::size_t bytes_next_to_steps(const OtherMemory& other, std::size_t weights, bool alone) {
  return trainer_bytes + other.loader_bytes + other.vectors() * weights + other.update_bytes +
         other.exchange_bytes + (other.checkpoints ? run_bytes : 0) + (alone ? 0 : message_bytes);
}

void count_process(backend::Recompute& recompute, const nn::Network& network,
                   std::span<const backend::ProgramSpec> programs, backend::Backend& backend,
                   const OtherMemory& other, comm::Control& control) {
  if (!has_limit(recompute)) return;
  const auto measured = backend.measure_memory(network, programs);
  if (!measured) return;
  const double most = control.max({static_cast<double>(*measured)}, "memory of the processes")[0];
  const std::size_t weights = nn::numbers(network) * sizeof(float);
  const std::size_t needed =
      static_cast<std::size_t>(most) + bytes_next_to_steps(other, weights, control.world() == 1);
  recompute.reserved = (needed + rounding - 1) / rounding * rounding;
  recompute.scratch_reserved = true;
  if (!other.checkpoints) return;
  // A stage has a copy of the whole state, and then its image.
  const nn::Network& whole = other.gathered ? *other.gathered : network;
  const std::size_t copies = other.gathered ? 2 : 1;
  recompute.between_steps = copies * (2 + other.vectors()) * nn::numbers(whole) * sizeof(float) +
                            largest_tensor(nn::tensors(whole));
}

std::size_t copies_within(const backend::Recompute& recompute, const backend::MemoryPlan& plan,
                          const nn::ArenaLayout& layout, std::size_t bytes, std::size_t most) {
  if (!has_limit(recompute) || recompute.reserved == 0) return most;
  // The average and second moments are reserved; frozen layers have weights only.
  const std::size_t parameters = sizeof(float) * (3 * layout.size + layout.frozen_size);
  std::vector<nn::Tensor> tensors;
  for (const nn::Slice& slice : layout.slices) tensors.push_back(slice.tensor);
  const std::size_t used = recompute.reserved + parameters + plan.activations +
                           (recompute.scratch_reserved ? 0 : plan.workspace) +
                           largest_tensor(tensors);
  return std::min(most, (recompute.memory_limit - std::min(recompute.memory_limit, used)) / bytes);
}

namespace {

/// Some ranks whose statistics are one have a single row in some micro-batch of such a step.
bool leaves_one_row(std::uint64_t global_rows, const StepRows& rows, std::size_t norm_ranks) {
  std::vector<std::size_t> together;
  for (int replica = 0; replica < rows.replicas; ++replica) {
    const auto parts = plan_micro_batches(global_rows, rows.replicas, replica, rows.most);
    together.resize(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) together[i] += parts[i].rows;
    if ((static_cast<std::size_t>(replica) + 1) % norm_ranks != 0) continue;
    if (std::ranges::count(together, std::size_t{1}) > 0) return true;
    together.assign(parts.size(), 0);
  }
  return false;
}

/// What gives each micro-batch two rows.
std::string remedy_of(const StepRows& rows, const config::Config& config) {
  if (config.shards > 0) {
    const std::uint64_t fewer = rows.full / 2;
    return fewer > 0 ? fmt::format("use --shards {} or fewer", fewer) : "use --batch 2 or more";
  }
  const auto replicas = static_cast<std::uint64_t>(rows.replicas);
  const std::uint64_t parts = rows.full / (2 * replicas);
  if (parts > 0) return fmt::format("use --accumulate {}", parts);
  const std::string larger =
      fmt::format("use --batch {} or more", 2 * replicas * config.accumulate);
  return replicas == 1 ? larger : larger + ", fewer ranks, or --model-options.norm-ranks";
}

}  // namespace

std::string why_not_one_row(const nn::Network& network) {
  const auto found = std::ranges::find_if(network.nodes, [](const nn::Node& node) {
    return node.op == nn::Op::batch_norm && node.shape.height * node.shape.width == 1;
  });
  if (found == network.nodes.end()) return "";
  return fmt::format(
      "batch norm {}, whose images have 1 x 1 pixels, has one value a channel and no deviation: it "
      "cannot be trained so",
      found->name);
}

void require_norm_values(const nn::Network& trained, const StepRows& rows,
                         const config::Config& config) {
  const std::string why = why_not_one_row(trained);
  if (why.empty()) return;
  const std::size_t norm_ranks = config.model_options.norm_ranks;
  const std::string shared =
      counted(static_cast<std::size_t>(rows.replicas), config.shards > 0 ? "shard" : "rank");
  require(
      !leaves_one_row(rows.full, rows, norm_ranks),
      fmt::format("batch = {}{} on {} give micro-batches of 1 row, of which {}; {}, or larger "
                  "images",
                  rows.full,
                  config.shards > 0 ? "" : fmt::format(" and accumulate = {}", config.accumulate),
                  shared, why, remedy_of(rows, config)));
  require(!leaves_one_row(rows.last, rows, norm_ranks),
          fmt::format("data.keep-last = true and batch = {} on {} leave an epoch's last batch {}, "
                      "with a micro-batch of 1 row, of which {}; leave out data.keep-last, or use "
                      "another batch",
                      rows.full, shared, counted(rows.last, "row"), why));
}

namespace {

using config::AllReduceChoice;

constexpr float one_node_mb = 1, gpu_mb = 25;

/// The configuration of the checkpoint, if it was written by as many replicas.
std::optional<config::Config> begun_with(const ReductionSetting& setting) {
  const std::optional<ResumePoint>& resume = setting.resume;
  if (!resume || resume->header.replicas != static_cast<std::uint64_t>(setting.flat.world()))
    return std::nullopt;
  return written_config(*resume);
}

AllReduceChoice best_choice(const ReductionSetting& setting) {
  if (!setting.on_host || !comm::has_two_levels(setting.nodes)) return AllReduceChoice::flat;
  const auto before = begun_with(setting);
  return before ? before->comm.all_reduce : AllReduceChoice::two_level;
}

}  // namespace

AllReduce choose_all_reduce(const config::Config::Comm& asked, const ReductionSetting& setting) {
  const bool insists = asked.all_reduce == AllReduceChoice::two_level;
  require(!insists || setting.on_host,
          "comm.all-reduce = two-level: on GPUs the library of the network decides; leave it out");
  const bool open = asked.all_reduce == AllReduceChoice::automatic;
  AllReduce decided{open ? best_choice(setting) : asked.all_reduce, nullptr};
  if (decided.choice == AllReduceChoice::flat || setting.flat.world() == 1) return decided;
  decided.two_level = comm::two_level_or_flat(setting.flat, setting.control, setting.nodes,
                                              {.deadline_s = asked.deadline_s},
                                              insists ? "comm.all-reduce = two-level" : "");
  if (decided.two_level)
    log::info(fmt::format("all-reduces over two levels: {} ranks on {}", setting.nodes.world(),
                          counted(setting.nodes.count(), "node")));
  else
    decided.choice = AllReduceChoice::flat;
  return decided;
}

float choose_bucket_mb(const config::Config::Comm& asked, const ReductionSetting& setting,
                       comm::Communicator& communicator, const nn::Network& network) {
  if (asked.bucket_mb > 0) return asked.bucket_mb;
  if (const auto before = begun_with(setting); before && before->comm.bucket_mb > 0)
    return before->comm.bucket_mb;
  if (!setting.on_host) return gpu_mb;
  if (setting.nodes.count() == 1) return one_node_mb;
  const std::size_t bytes = nn::numbers(network) * sizeof(float);
  const reduce::LinkCost cost = reduce::measure_all_reduce(communicator, setting.control);
  const float best_mb = reduce::best_bucket_mb(cost, bytes);
  log::info(
      fmt::format("buckets of {} MB: an all-reduce takes {:.2f} ms and 1 ms for each {:.2f} "
                  "MB",
                  best_mb, 1e3 * cost.latency_s, cost.bytes_per_s / 1e9));
  return best_mb;
}

}  // namespace lockstep::train
