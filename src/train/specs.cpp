#include "lockstep/train/specs.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/share.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/nn/partition.hpp"

namespace lockstep::train {
namespace {

/// True when training cuts boxes of random size and shape and resizes them.
bool is_stretched(const config::Config& config, const data::DataSetInfo& stored) {
  if (config.data.crop == config::CropChoice::automatic)
    return stored.encoding == data::Encoding::jpeg;
  return config.data.crop == config::CropChoice::random_resized;
}

/// The shorter side to resize to before cutting out a window; 0: no resize.
std::size_t short_side(const config::Config& config, const data::DataSetInfo& stored,
                       std::size_t side) {
  if (config.data.resize > 0) return config.data.resize;
  const bool by_custom = stored.encoding == data::Encoding::jpeg || is_stretched(config, stored);
  return by_custom ? model::usual_short_side(side) : 0;
}

}  // namespace

void require_channels(const data::DataSetInfo& data, const std::string& path) {
  require(data.channels >= 1 && data.channels <= data::most_channels,
          fmt::format("{} has images of {} channels; networks take 1 to {}", path, data.channels,
                      data::most_channels));
}

data::ExternalSpec external_spec(const config::Config& config,
                                 const data::DataSetInfo* trained_on) {
  const config::Config::Data& data = config.data;
  const auto choose = [&](const std::string& training, const std::string& validation) {
    return trained_on != nullptr && !validation.empty() ? validation : training;
  };
  return {
      .images = choose(data.images, data.val_images),
      .labels = choose(data.labels, data.val_labels),
      .channels = data.channels,
      .labels_of_training = trained_on != nullptr && data.val_labels.empty() && data.held_out == 0,
      .layout = choice_name(data.layout),
      .element = choice_name(data.element),
      .range = choice_name(data.range),
      .no_data = data.no_data,
      .clip = data.clip,
      .curve = data.curve,
      .part = data.held_out == 0      ? lockstep::data::RowsPart::all
              : trained_on == nullptr ? lockstep::data::RowsPart::kept
                                      : lockstep::data::RowsPart::held_out,
      .held_out = data.held_out,
      .seed = config.seed,
      .task = find_choice<lockstep::data::Task>(choice_name(data.task)),
      .unknown = data.unknown,
      .classes = data.classes,
      .like = trained_on,
      .skips_bad_rows = data.on_bad_row == config::OnBadRow::skip,
      .cache_bytes = data.cache_mb * 1'000'000};
}

config::Config for_other_data(config::Config config, const std::string& path) {
  std::error_code none;
  const bool is_same =
      path == config.data.val || std::filesystem::equivalent(path, config.data.val, none);
  if (!is_same && config.data.val_labels.find(':') != std::string::npos)
    config.data.val_labels.clear();
  return config;
}

void say_what_is_read(const data::DataSet& rows, const std::string& path) {
  if (log::rank() != 0) return;
  if (const std::string sets = rows.say_sets(); !sets.empty())
    log::info(fmt::format("{}: {}", path, sets));
  for (const std::string& doubt : rows.doubts()) log::warn(doubt);
}

data::SamplerSpec training_order(const config::Config& config, const data::DataSet& rows,
                                 int replicas) {
  constexpr std::size_t large = 4'000'000, few = 64;
  const data::DataSetInfo& info = rows.info();
  const data::Storage storage = rows.storage();
  std::size_t block = config.data.block;
  if (block == 0 && !storage.contiguous) block = storage.block_rows;
  if (block == 0) {
    std::uint64_t bytes = 0;
    const std::size_t looks = std::min<std::size_t>(info.rows, 100);
    for (std::size_t row = 0; row < looks; ++row) bytes += rows.row_bytes(row);
    block = large * looks / bytes;
    // A small data set still has some blocks for each replica to mix.
    block = std::min(block, info.rows / (few * config::sharers(config, replicas)));
  }
  return {.rows = info.rows,
          .global_batch = config.batch,
          .replicas = static_cast<int>(config::sharers(config, replicas)),
          .seed = config.seed,
          .shuffle = config.data.shuffle,
          .keep_last = config.data.keep_last,
          .block = std::clamp<std::size_t>(block, 1, info.rows),
          .window = config.data.window,
          .balance =
              config.data.balance > 0
                  ? data::balance_classes(rows.labels(), info.classes.size(), config.data.balance)
                  : nullptr};
}

data::AugmentSpec training_augment(const config::Config& config, const data::DataSetInfo& stored) {
  constexpr std::size_t usual = 224;
  data::AugmentSpec spec{.pad = config.data.pad,
                         .flip = config.data.flip,
                         .dihedral = config.data.dihedral,
                         .channel_dropout = config.data.channel_dropout,
                         .cutout = config.data.cutout,
                         .seed = config.seed,
                         .min_area = config.data.min_area,
                         .effects = {.brightness = config.data.brightness,
                                     .contrast = config.data.contrast,
                                     .saturation = config.data.saturation,
                                     .hue = config.data.hue,
                                     .operations = config.data.randaugment,
                                     .magnitude = config.data.randaugment_magnitude,
                                     .erase = config.data.erase}};
  const bool jpeg = stored.encoding == data::Encoding::jpeg;
  const bool stretched = is_stretched(config, stored);
  spec.crop = stretched ? data::Crop::random_resized : data::Crop::random;
  spec.height = spec.width = config.data.size > 0 ? config.data.size : jpeg ? usual : 0;
  if (!stretched)
    spec.short_side = jpeg || config.data.resize > 0 ? short_side(config, stored, spec.height) : 0;
  if (stretched && spec.height == 0) {
    spec.height = stored.height;
    spec.width = stored.width;
  }
  return spec;
}

data::MixSpec training_mix(const config::Config& config) {
  return {.mixup = config.data.mixup, .cutmix = config.data.cutmix, .seed = config.seed};
}

std::string plan_file(const config::Config& config) {
  return config.tune_cache.empty() ? "runs/plans.txt" : config.tune_cache;
}

namespace {

optim::Formula make_formula(const config::Config::Optim& given) {
  switch (given.rule) {
    case optim::Rule::sgd:
      return optim::Sgd{.momentum = given.momentum, .nesterov = given.nesterov};
    case optim::Rule::lars:
      return optim::Lars{.momentum = given.momentum,
                         .nesterov = given.nesterov,
                         .coefficient = given.trust,
                         .form = given.lars_momentum};
    case optim::Rule::lamb:
      return optim::Lamb{
          .momentum = given.momentum, .beta2 = given.beta2, .epsilon = given.epsilon};
    case optim::Rule::muon:
      return optim::Muon{.momentum = given.momentum,
                         .rest_momentum = given.rest_momentum,
                         .nesterov = given.nesterov,
                         .iterations = static_cast<int>(given.newton_schulz)};
  }
  throw Error("a rule that specs do not know");
}

}  // namespace

reduce::ExchangeKind exchange_of(config::Wire wire) {
  switch (wire) {
    case config::Wire::fp32:
      return reduce::ExchangeKind::exact;
    case config::Wire::bf16:
      return reduce::ExchangeKind::bf16;
    case config::Wire::fp16:
      return reduce::ExchangeKind::fp16;
    case config::Wire::int8:
      return reduce::ExchangeKind::int8;
  }
  throw Error("a wire that specs do not know");
}

reduce::ExchangeKind exchange_of(const config::Config& config) {
  using enum reduce::ExchangeKind;
  return config.sync.gossip          ? gossip
         : config.sync.every > 1     ? local
         : config.comm.power_sgd > 0 ? power_sgd
                                     : exchange_of(config.comm.wire);
}

bool has_groups_by_node(const config::Config& config) {
  return config.sync.every > 1 && config.sync.group == config::SyncGroup::node;
}

config::Config with_exact_exchange(config::Config config) {
  if (config.comm.wire == config::Wire::int8) config.comm.wire = config::Wire::fp32;
  config.comm.power_sgd = 0;
  config.sync.every = 1;
  config.sync.gossip = false;
  return config;
}

bool continues_alone(const config::Config& config, int replicas, const comm::Nodes& nodes) {
  const bool one = replicas == 1 || (has_groups_by_node(config) && nodes.count() == 1);
  return one && !config.resume.empty() &&
         exchange_of(config) != exchange_of(with_exact_exchange(config));
}

reduce::SavedBytes exchange_state_bytes(const config::Config& config, const nn::Network& network) {
  return reduce::saved_bytes(
      exchange_of(config), nn::numbers(nn::trained_part(network)), config.optim.ema > 0,
      optim::has_second_moments(make_formula(config.optim)),
      {.outer_momentum = config.sync.outer_momentum}, {.late = config.sync.gossip_late});
}

void require_tiles(const nn::Network& network, std::size_t tiles) {
  if (tiles == 1) return;
  for (const nn::Node& node : network.nodes)
    require(
        node.padding < node.kernel || node.kernel == 0,
        fmt::format("tiles = {}: {} has windows that lie outside of the image", tiles, node.name));
  require(
      tiles <= nn::most_tiles(network),
      fmt::format("tiles = {}: {} has a map of {} from images of {} x {}, and each tile needs a "
                  "line of it; at most {} are possible",
                  tiles, network.name, counted(nn::most_tiles(network), "line"),
                  network.input.height, network.input.width, nn::most_tiles(network)));
}

TrainerSpec make_trainer_spec(const config::Config& config, const data::DataSetInfo& data,
                              int replicas, int replica) {
  const std::size_t most = even_share(config.batch, config::sharers(config, replicas), 0);
  TrainerSpec spec;
  spec.network = infer::make_network(config, data);
  spec.program = infer::make_program_spec(config, data, even_share(most, config.accumulate, 0));
  spec.program.lanes = config.lanes;
  spec.shards = config.shards;
  spec.micro_batches = config.accumulate;
  if (config.tune == config::Switch::on) spec.program.plan_cache = plan_file(config);
  spec.program.writes_plan_cache = replica == 0;
  spec.exchange = exchange_of(config);
  spec.norm_ranks = config.model_options.norm_ranks;
  spec.tiles = config.tiles;
  spec.program.tile.count = config.tiles;
  spec.power_sgd.rank = config.comm.power_sgd;
  spec.gossip.late = config.sync.gossip_late;
  spec.formula = make_formula(config.optim);
  const nn::Network trained = nn::trained_part(spec.network);
  spec.program.update_bytes = backend::update_bytes(trained, spec.formula);
  spec.bucket_bytes = static_cast<std::size_t>(config.comm.bucket_mb * 1e6);
  const std::size_t largest = nn::largest(nn::tensors(trained));
  spec.program.exchange_bytes = reduce::exchange_bytes(
      spec.exchange, {.numbers = nn::numbers(trained),
                      .world = static_cast<std::size_t>(replicas),
                      .second_moments = spec.program.keeps_second_moments,
                      .gossip_late = spec.gossip.late,
                      .shards = spec.shards,
                      .bucket_bytes = spec.bucket_bytes + largest * sizeof(float)});
  spec.weight_decay = config.optim.weight_decay;
  spec.decay_norm_and_bias = config.optim.decay_norm_and_bias;
  spec.rest_lr_factor = config.optim.rest_lr_factor;
  spec.backbone_lr_factor = config.optim.backbone_lr_factor;
  spec.clip_norm = config.optim.clip_norm;
  spec.average = {.decay = config.optim.ema};
  spec.seed = config.seed;
  spec.graph = config.graph == config::Switch::on;
  return spec;
}

optim::ScheduleSpec make_schedule(const config::Config& config, std::uint64_t steps_per_epoch) {
  const auto& given = config.optim;
  optim::ScheduleSpec spec;
  spec.base = given.lr;
  spec.final_lr = given.final_lr;
  spec.warmup_start = given.warmup_start;
  spec.warmup_steps = static_cast<std::uint64_t>(std::llround(
      static_cast<double>(given.warmup_epochs) * static_cast<double>(steps_per_epoch)));
  spec.total_steps = config.epochs * steps_per_epoch;
  spec.decay = given.decay;
  for (const std::uint64_t epoch : given.milestones)
    spec.milestones.push_back(epoch * steps_per_epoch);
  spec.factor = given.factor;
  spec.power = given.power;
  return spec;
}

reduce::PowerSgdSpec make_power_sgd_spec(const config::Config& config,
                                         std::uint64_t steps_per_epoch) {
  const std::uint64_t asked = config.comm.power_sgd_from_epoch * steps_per_epoch;
  return {.rank = config.comm.power_sgd,
          .from_step = asked > 0 ? asked : make_schedule(config, steps_per_epoch).warmup_steps};
}

reduce::LocalSpec make_local_spec(const config::Config& config, const comm::Nodes& nodes,
                                  std::uint64_t steps_per_epoch) {
  const auto& given = config.sync;
  if (given.every == 1) return {};
  const bool by_node = has_groups_by_node(config);
  require(!by_node || nodes.count() > 1,
          fmt::format("sync.every = {} is about the groups of sync.group = node, and all ranks are "
                      "on one node: use sync.group = rank, or leave it out",
                      given.every));
  std::vector<std::size_t> groups = nodes.node_of_ranks();
  if (!by_node) std::iota(groups.begin(), groups.end(), std::size_t{0});
  return {.groups = std::move(groups),
          .every = given.every,
          .from_step = given.from_epoch * steps_per_epoch,
          .outer_momentum = given.outer_momentum,
          .outer_lr = given.outer_lr};
}

}  // namespace lockstep::train
