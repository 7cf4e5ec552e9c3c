#include "lockstep/config/config.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "config/key.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/http.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/config/toml.hpp"

namespace lockstep::config {
namespace {

const char* kind_name(const ConfigKey& key) {
  if (key.is_switch) return "true, false or \"auto\"";
  if (key.has_auto) return "a number or \"auto\"";
  switch (key.kind) {
    case TomlKind::text:
      return "a text in quotes";
    case TomlKind::number:
      return "a number";
    case TomlKind::boolean:
      return "true or false";
    case TomlKind::list:
      return "a list like [30, 60]";
    case TomlKind::texts:
    case TomlKind::table:
    case TomlKind::other:
      break;
  }
  throw Error("this kind of value has no name");
}

bool is_section(const std::string& name) {
  for (const ConfigKey& key : config_keys())
    if (key.name.starts_with(name + '.')) return true;
  return false;
}

std::string toml_value(const ConfigKey& key, const Config& config) {
  std::string value = key.get(config);
  const bool is_text = key.kind == TomlKind::text && !key.is_switch;
  if (is_text || value == "auto") return toml_quote(value);
  if (key.kind != TomlKind::list) return value;
  std::string spaced;
  for (const char c : value) spaced += c == ',' ? std::string(", ") : std::string(1, c);
  return '[' + spaced + ']';
}

/// How a batch is shared, in words.
std::string say_sharers(const Config& config, int replicas) {
  return counted(sharers(config, replicas), config.shards > 0 ? "shard" : "rank");
}
std::string say_micro_batches(const Config& config, int replicas) {
  if (config.shards > 0) return fmt::format("shards = {}", config.shards);
  return fmt::format("ranks x accumulate = {} x {} = {}", replicas, config.accumulate,
                     sharers(config, replicas) * config.accumulate);
}

void resolve_batch(Config& config, int replicas) {
  const std::size_t ranks = sharers(config, replicas);
  if (config.batch == 0 && config.batch_per_rank == 0) config.batch = 128;
  if (config.batch_per_rank != 0) {
    const std::size_t wanted = config.batch_per_rank * ranks;
    require(config.batch == 0 || config.batch == wanted,
            fmt::format("batch = {} and batch-per-rank = {} contradict each other: {} of {} make "
                        "{}; give one of the two",
                        config.batch, config.batch_per_rank, say_sharers(config, replicas),
                        counted(config.batch_per_rank, "row"), wanted));
    config.batch = wanted;
    config.batch_per_rank = 0;
  }
  const std::size_t parts = ranks * config.accumulate;
  require(config.batch >= parts,
          fmt::format("batch = {} cannot be shared: each of {} micro-batches needs at least one "
                      "row",
                      config.batch, say_micro_batches(config, replicas)));
}

/// What a GPU can be asked for together.
void check_gpu_keys(const Config& config, int replicas) {
  const auto on = [](Switch key) { return key == Switch::on; };
  require(
      !(on(config.tune) && config.deterministic),
      "tune and deterministic contradict each other: which engine is the fastest can differ from "
      "start to start, and so can the bits; leave one of them out");
  require(!(on(config.fuse_norms) && config.deterministic),
          "fuse-norms and deterministic contradict each other: the sums that cuDNN's convolutions "
          "make have other bits each time; leave one of them out");
  const std::string differ = why_steps_differ(config, replicas);
  require(!on(config.graph) || differ.empty(), differ);
}

/// Where there is one rank only, a key about ranks has no effect; but a run that had more continues
/// there, and may have more again.
bool has_others(const Config& config, int replicas) {
  return replicas > 1 || !config.resume.empty();
}

void check_wire(const Config& config, int replicas) {
  if (config.comm.wire != Wire::int8) return;
  require(has_others(config, replicas),
          "comm.wire = int8 says how ranks send gradients, and ranks = 1: leave it out");
  require(config.precision != backend::Precision::fp16,
          "comm.wire = int8 keeps what rounding left out, and with precision = fp16 the scale of "
          "gradients changes from step to step: use comm.wire = fp16, or precision = bf16");
}

void check_power_sgd(const Config& config, int replicas) {
  const auto& comm = config.comm;
  if (comm.power_sgd == 0) return;
  const std::string asked = fmt::format("comm.power-sgd = {}", comm.power_sgd);
  require(has_others(config, replicas),
          asked + " says how ranks send gradients, and ranks = 1: leave it out");
  require(comm.wire == Wire::fp32,
          fmt::format("{} and comm.wire = {} both say how gradients travel: leave one of them out",
                      asked, choice_name(comm.wire)));
  require(
      config.sync.every == 1,
      fmt::format("{} says how ranks send gradients in each step, and with sync.every = {} they "
                  "send weights: leave one of them out",
                  asked, config.sync.every));
  require(config.precision != backend::Precision::fp16,
          asked +
              " keeps what products left out, and with precision = fp16 the scale of gradients "
              "changes from step to step: use precision = bf16");
  require(comm.power_sgd_from_epoch < config.epochs,
          fmt::format("comm.power-sgd-from-epoch = {} would have no effect: the run has {} epochs",
                      comm.power_sgd_from_epoch, config.epochs));
  const float warmup = config.optim.warmup_epochs;
  const bool by_warmup = comm.power_sgd_from_epoch == 0;
  require(!by_warmup || warmup < static_cast<float>(config.epochs),
          fmt::format("{} begins when the warm-up has ended, and optim.warmup-epochs = {} is not "
                      "shorter than the run of {} epochs: leave one of them out",
                      asked, warmup, config.epochs));
  require(by_warmup || static_cast<float>(comm.power_sgd_from_epoch) >= warmup,
          fmt::format("comm.power-sgd-from-epoch = {} is before the end of the warm-up, "
                      "optim.warmup-epochs = {}, in which gradients change too fast for products "
                      "of low rank: name a later epoch, or leave it out",
                      comm.power_sgd_from_epoch, warmup));
}

/// The key by which exchanges have steps that are not alike; empty where they are.
std::string unlike_exchange(const Config& config) {
  const auto& comm = config.comm;
  if (config.sync.every != 1) return fmt::format("sync.every = {}", config.sync.every);
  if (config.sync.gossip) return "sync.gossip = true";
  const bool later = comm.power_sgd_from_epoch > 0 || config.optim.warmup_epochs > 0;
  if (comm.power_sgd == 0 || !later) return "";
  return fmt::format("comm.power-sgd = {}, which begins after some of them,", comm.power_sgd);
}

void check_sync(const Config& config, int replicas) {
  if (config.sync.every == 1) return;
  const std::string asked = fmt::format("sync.every = {}", config.sync.every);
  require(has_others(config, replicas),
          asked + " says how often ranks agree, and ranks = 1: leave it out");
  require(config.comm.wire == Wire::fp32,
          asked + " sends weights, which do not travel narrow: leave out comm.wire = " +
              std::string(choice_name(config.comm.wire)));
  require(config.sync.from_epoch < config.epochs,
          fmt::format("sync.from-epoch = {} would have no effect: the run has {} epochs",
                      config.sync.from_epoch, config.epochs));
}

void refuse_both(bool both, const std::string& one, const std::string& other, const char* why) {
  require(!both,
          fmt::format("{} and {} do not fit together: {}; leave one of them out", one, other, why));
}

/// "sync.every = 8", as a file has it.
std::string said(const Config& config, const char* key) {
  return fmt::format("{} = {}", key, find_key(key)->get(config));
}

/// Refuses a key next to `asked`, if it is set.
auto refuser(const Config& config, const char* asked) {
  return [&config, asked](bool is_set, const char* other, const char* why) {
    if (is_set) refuse_both(true, said(config, asked), said(config, other), why);
  };
}

void check_gossip(const Config& config, int replicas) {
  if (!config.sync.gossip) return;
  require(has_others(config, replicas),
          "sync.gossip = true says which ranks send weights to which, and ranks = 1: leave it out");
  const auto leave_out = refuser(config, "sync.gossip");
  leave_out(config.sync.every > 1, "sync.every", "both say how ranks agree on weights");
  leave_out(config.comm.wire != Wire::fp32, "comm.wire", "weights travel, and not narrow");
  leave_out(config.comm.power_sgd > 0, "comm.power-sgd", "weights travel, and not gradients");
  leave_out(config.optim.ema > 0, "optim.ema",
            "the mean of the ranks is evaluated, and an average of one rank's weights is not its");
  leave_out(config.precision == backend::Precision::fp16, "precision",
            "ranks that do not wait for each other have no common scale of gradients");
}

void check_norm_ranks(const Config& config, int replicas) {
  const std::size_t ranks = config.model_options.norm_ranks;
  if (ranks == 1) return;
  const std::string asked = fmt::format("model-options.norm-ranks = {}", ranks);
  require(static_cast<std::size_t>(replicas) % ranks == 0,
          fmt::format("{} does not divide the number of ranks, {}: each group has that many", asked,
                      replicas));
  const auto leave_out = refuser(config, "model-options.norm-ranks");
  constexpr const char* why = "ranks whose weights differ have no statistics in common";
  leave_out(config.sync.every > 1, "sync.every", why);
  leave_out(config.sync.gossip, "sync.gossip", why);
}

void check_shards(const Config& config, int replicas) {
  if (config.shards == 0) return;
  require_shards(config, static_cast<std::size_t>(replicas));
  const auto leave_out = refuser(config, "shards");
  leave_out(config.accumulate > 1, "accumulate", "more shards are that");
  leave_out(config.comm.wire != Wire::fp32, "comm.wire",
            "what is rounded on its way depends on the ranks");
  leave_out(config.comm.power_sgd > 0, "comm.power-sgd", "each rank's gradients become products");
  leave_out(config.sync.every > 1, "sync.every", "the ranks' weights differ");
  leave_out(config.sync.gossip, "sync.gossip", "the ranks' weights differ");
  leave_out(config.model_options.norm_ranks > 1, "model-options.norm-ranks",
            "larger shards share statistics");
  leave_out(config.data.shuffle == data::Shuffle::node, "data.shuffle",
            "its order depends on the nodes");
}

void check_stages(const Config& config) {
  if (config.stages == 1) return;
  const auto leave_out = refuser(config, "stages");
  leave_out(config.backend == BackendChoice::cuda, "backend",
            "only ranks that compute on CPUs pass values to each other");
  leave_out(config.shards > 0, "shards", "a rank has some rows of a batch, and all layers");
  leave_out(config.model_options.norm_ranks > 1, "model-options.norm-ranks",
            "the ranks of a group must run the same layers at the same time");
  leave_out(config.comm.wire != Wire::fp32, "comm.wire", "the gradients of a stage travel whole");
  leave_out(config.comm.power_sgd > 0, "comm.power-sgd", "the gradients of a stage travel whole");
  leave_out(config.comm.all_reduce == AllReduceChoice::two_level, "comm.all-reduce",
            "the ranks of a node have different layers");
  leave_out(config.sync.every > 1, "sync.every", "the stages of a replica must agree in each step");
  leave_out(config.sync.gossip, "sync.gossip", "the stages of a replica must agree in each step");
  refuser(config, "pipeline")(
      config.pipeline == PipelineOrder::zb_h1 &&
          config.recompute.mode != backend::Recompute::Mode::none,
      "recompute",
      "what is made again would stay until the weight gradients, so that it saves no memory");
}

void check_tiles(const Config& config) {
  if (config.tiles == 1) return;
  const auto leave_out = refuser(config, "tiles");
  leave_out(config.backend != BackendChoice::cpu && config.backend != BackendChoice::automatic,
            "backend", "only ranks that compute on CPUs share the lines of an image");
  leave_out(config.shards > 0, "shards", "what is added in which order depends on the tiles");
  leave_out(config.model_options.norm_ranks > 1, "model-options.norm-ranks",
            "batch norms share the tiles' statistics");
  leave_out(config.freeze != nn::Freeze::none, "freeze", "frozen layers have whole images");
  leave_out(config.sync.every > 1, "sync.every", "the tiles of a replica must agree in each step");
  leave_out(config.sync.gossip, "sync.gossip", "the tiles of a replica must agree in each step");
  leave_out(config.data.shuffle == data::Shuffle::node, "data.shuffle",
            "the tiles of an image have the same rows, on whatever nodes they are");
}

void check_clock(const Config& config) {
  if (config.backend != BackendChoice::clock) return;
  const bool line = config.clock.row_ms > 0 || config.clock.step_ms > 0;
  require(line != !config.clock.profile.empty(),
          "backend = clock: say how long a step takes, either by clock.row-ms and clock.step-ms or "
          "by clock.profile");
}

void check_metrics(const Config::Metrics& metrics) {
  if (!metrics.listen.empty()) parse_listen(metrics.listen, "metrics.listen");
  require(metrics.textfile.empty() || metrics.textfile.ends_with(".prom"),
          fmt::format("metrics.textfile = {}: node_exporter reads only files NAME.prom",
                      metrics.textfile));
}

void check_fine_tuning(const Config& config) {
  require(config.optim.backbone_lr_factor > 0,
          "optim.backbone-lr-factor = 0 would compute gradients that change nothing: --freeze "
          "backbone leaves them out");
}

void check_rule(const Config::Optim& optim) {
  require(
      optim.rule != lockstep::optim::Rule::lamb || !optim.nesterov,
      "optim.nesterov = true has no meaning with optim.rule = lamb, whose momentum is a mean of "
      "gradients: leave it out");
}

void check_milestones(const Config& config) {
  const auto& milestones = config.optim.milestones;
  for (const std::uint64_t epoch : milestones)
    require(epoch < config.epochs,
            fmt::format("optim.milestones = {}: {} would have no effect: the run ends with epoch "
                        "{}, and a milestone counts from the next one on",
                        join(milestones, ","), epoch, config.epochs));
  std::vector<std::uint64_t> sorted = milestones;
  std::ranges::sort(sorted);
  require(std::ranges::adjacent_find(sorted) == sorted.end(),
          fmt::format("optim.milestones = {} names an epoch twice, which would multiply by the "
                      "factor twice: name each once",
                      join(milestones, ",")));
  require(config.optim.decay != lockstep::optim::Decay::step || !milestones.empty(),
          "optim.decay is 'step' but optim.milestones is empty; name the epochs, e.g. 30,60,80");
}

}  // namespace

void set_key(Config& config, const std::string& name, const std::string& value) {
  const ConfigKey* key = find_key(name);
  require(key != nullptr, unknown_key(name));
  key->set(config, value);
}

std::set<std::string> apply_toml(Config& config, std::string_view text, const std::string& origin) {
  std::set<std::string> names;
  for (const TomlEntry& entry : read_toml(text, origin)) {
    if (entry.kind == TomlKind::table && is_section(entry.key)) continue;
    const std::string where = fmt::format("{}, line {}: ", origin, entry.line);
    const ConfigKey* key = find_key(entry.key);
    require(key != nullptr, where + unknown_key(entry.key));
    require(entry.kind == key->kind || (key->is_size && entry.kind == TomlKind::text) ||
                (key->has_auto && entry.kind == TomlKind::text && entry.value == "auto") ||
                (key->is_switch && entry.kind == TomlKind::boolean),
            where + fmt::format("{} takes {}", entry.key, kind_name(*key)));
    try {
      key->set(config, entry.value);
    } catch (const InputError& error) {
      throw InputError(where + error.what());
    }
    names.insert(key->name);
  }
  return names;
}

Config config_in(std::string_view text, const std::string& origin) {
  Config config;
  apply_toml(config, text, origin);
  return config;
}

namespace {

std::string write_toml(const Config& config, const std::vector<const ConfigKey*>& keys) {
  std::string text, section;
  for (const ConfigKey* key : keys) {
    const std::size_t dot = key->name.find('.');
    const bool top = dot == std::string::npos;
    const std::string its_section = top ? "" : key->name.substr(0, dot);
    if (its_section != section) text += fmt::format("\n[{}]\n", its_section);
    section = its_section;
    text += fmt::format("{} = {}\n", top ? key->name : key->name.substr(dot + 1),
                        toml_value(*key, config));
  }
  return text;
}

}  // namespace

std::string to_toml(const Config& config) {
  std::vector<const ConfigKey*> all;
  for (const ConfigKey& key : config_keys()) all.push_back(&key);
  return write_toml(config, all);
}

std::string to_toml_where_other(const Config& config, const Config& other) {
  return write_toml(config, changed_keys(config, other));
}

comm::GridShape grid_shape(const Config& config, int ranks) {
  const auto parts = static_cast<int>(config.stages * config.tiles);
  const std::string asked = config.tiles == 1 ? said(config, "stages")
                            : config.stages == 1
                                ? said(config, "tiles")
                                : said(config, "stages") + " and " + said(config, "tiles");
  const std::string each = config.tiles == 1 ? "stage" : config.stages == 1 ? "tile" : "part";
  require(parts <= ranks,
          fmt::format("{} on {}: each {} needs a rank; at most {} are possible", asked,
                      counted(static_cast<std::size_t>(ranks), "rank"), each, ranks));
  require(ranks % parts == 0,
          fmt::format("{} does not divide the number of ranks, {}: each replica of the network has "
                      "{}",
                      asked, ranks, parts));
  return {.replicas = ranks / parts,
          .stages = static_cast<int>(config.stages),
          .tiles = static_cast<int>(config.tiles)};
}

void require_whole_replicas(const Config& config, std::string_view what) {
  for (const auto& [count, key] : {std::pair{config.stages, "stages"}, {config.tiles, "tiles"}})
    require(count == 1, fmt::format("{}: {}, in which each rank has all of a replica; leave it out",
                                    said(config, key), what));
}

void resolve(Config& config, int ranks) {
  check_ranges(config);
  const comm::GridShape shape = grid_shape(config, ranks);
  const int replicas = shape.replicas, sharers = replicas * shape.tiles;
  resolve_batch(config, replicas);
  if (config.out.empty()) config.out = "runs/" + config.model + "-{n}";
  require(config.resume != "auto" || config.out.find("{n}") == std::string::npos,
          fmt::format("resume = auto looks for checkpoints in the run directory, but out = '{}' "
                      "names a new one each time: name the one to resume as --out",
                      config.out));
  refuse_idle_keys(config);
  check_gpu_keys(config, replicas);
  check_wire(config, sharers);
  check_power_sgd(config, sharers);
  check_sync(config, replicas);
  check_gossip(config, replicas);
  check_norm_ranks(config, replicas);
  check_shards(config, replicas);
  check_stages(config);
  check_tiles(config);
  check_fine_tuning(config);
  check_rule(config.optim);
  check_milestones(config);
  require_traceable(config.trace, ranks, "trace");
  check_metrics(config.metrics);
  check_clock(config);
  if (config.optim.lr_for_batch != 0) {
    // The linear scaling rule (Goyal et al. 2017): k times the batch, k times the learning rate.
    config.optim.lr *= static_cast<float>(static_cast<double>(config.batch) /
                                          static_cast<double>(config.optim.lr_for_batch));
    config.optim.lr_for_batch = 0;
  }
}

void require_shards(const Config& config, std::size_t ranks) {
  require(config.shards == 0 || config.shards >= ranks,
          fmt::format("shards = {} cannot be shared by {} ranks: each needs at least one",
                      config.shards, ranks));
}

std::string why_steps_differ(const Config& config, int replicas) {
  if (const std::string key = unlike_exchange(config); !key.empty())
    return fmt::format(
        "graph = true repeats one step's work, and with {} steps are not alike: leave one of them "
        "out",
        key);
  if (config.batch % (sharers(config, replicas) * config.accumulate) == 0) return "";
  return fmt::format(
      "graph = true repeats micro-batches of one size, and batch = {} does not divide among {} of "
      "them",
      config.batch, say_micro_batches(config, replicas));
}

std::vector<std::string> differences(const Config& before, const Config& now) {
  std::vector<std::string> found;
  for (const ConfigKey* key : changed_keys(now, before))
    if (key->changes_results)
      found.push_back(fmt::format("{} ({}, now {})", key->name, key->get(before), key->get(now)));
  return found;
}

}  // namespace lockstep::config
