#include "lockstep/train/config.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "lockstep/backend/backend.hpp"
#include "lockstep/base/edit_distance.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/join.hpp"

namespace lockstep::train {
namespace {

const ConfigKey* find_key(std::string_view name) {
  for (const ConfigKey& key : config_keys())
    if (key.name == name) return &key;
  return nullptr;
}

std::string unknown_key(const std::string& name) {
  std::size_t smallest = 4;  // farther is no slip of the fingers
  const ConfigKey* nearest = nullptr;
  for (const ConfigKey& key : config_keys()) {
    if (key.name.size() >= name.size() + smallest || name.size() >= key.name.size() + smallest)
      continue;
    const std::size_t distance = edit_distance(key.name, name);
    if (distance >= smallest) continue;
    smallest = distance;
    nearest = &key;
  }
  return fmt::format("unknown key '{}'{}", name,
                     nearest != nullptr ? fmt::format("; did you mean '{}'?", nearest->name)
                                        : "; 'lockstep train --help' lists all keys");
}

const char* kind_name(TomlKind kind) {
  switch (kind) {
    case TomlKind::text:
      return "a text in quotes";
    case TomlKind::number:
      return "a number";
    case TomlKind::boolean:
      return "true or false";
    case TomlKind::list:
      return "a list like [30, 60]";
    case TomlKind::table:
    case TomlKind::other:
      break;
  }
  throw Error("a kind of value without a name");
}

bool is_section(const std::string& name) {
  for (const ConfigKey& key : config_keys())
    if (key.name.starts_with(name + '.')) return true;
  return false;
}

std::string toml_value(const ConfigKey& key, const Config& config) {
  std::string value = key.get(config);
  if (key.kind == TomlKind::text) return toml_quote(value);
  if (key.kind != TomlKind::list) return value;
  std::string spaced;
  for (const char c : value) spaced += c == ',' ? std::string(", ") : std::string(1, c);
  return '[' + spaced + ']';
}

void resolve_batch(Config& config, int world) {
  const auto ranks = static_cast<std::size_t>(world);
  if (config.batch == 0 && config.batch_per_rank == 0) config.batch = 128;
  if (config.batch_per_rank != 0) {
    const std::size_t wanted = config.batch_per_rank * ranks;
    require(config.batch == 0 || config.batch == wanted,
            fmt::format("batch = {} and batch-per-rank = {} contradict each other: {} ranks of {} "
                        "rows make {}; give one of the two",
                        config.batch, config.batch_per_rank, world, config.batch_per_rank, wanted));
    config.batch = wanted;
    config.batch_per_rank = 0;
  }
  const std::size_t parts = ranks * config.accumulate;
  require(config.batch >= parts,
          fmt::format("batch = {} cannot be shared: each of ranks x accumulate = {} x {} = {} "
                      "micro-batches needs a row",
                      config.batch, world, config.accumulate, parts));
}

void check_ranges(const Config& config) {
  const auto at_least_one = [](std::string_view key, std::size_t value) {
    require(value >= 1, fmt::format("{} = {}: must be at least 1", key, value));
  };
  const auto within = [](std::string_view key, double value, double low, double high) {
    require(value >= low && value <= high,
            fmt::format("{} = {}: must lie between {} and {}", key, value, low, high));
  };
  at_least_one("epochs", config.epochs);
  at_least_one("accumulate", config.accumulate);
  at_least_one("data.slots", config.data.slots);
  at_least_one("data.window", config.data.window);
  at_least_one("eval.every-epochs", config.eval.every_epochs);
  at_least_one("checkpoint.keep", config.checkpoint.keep);
  for (const auto& [key, threads] :
       {std::pair{"threads", config.threads}, std::pair{"data.workers", config.data.workers},
        std::pair{"data.slots", config.data.slots}})
    within(key, static_cast<double>(threads), 0, most_threads);
  for (const auto& [key, rows] :
       {std::pair{"batch", config.batch}, std::pair{"batch-per-rank", config.batch_per_rank},
        std::pair{"accumulate", config.accumulate}, std::pair{"eval.batch", config.eval.batch}})
    within(key, static_cast<double>(rows), 0, most_batch_rows);
  within("data.classes", static_cast<double>(config.data.classes), 0, 1 << 20);
  within("data.block", static_cast<double>(config.data.block), 0, 1 << 30);
  within("data.window", static_cast<double>(config.data.window), 1, 1 << 20);
  within("data.readahead", static_cast<double>(config.data.readahead), 0, 1 << 30);
  within("data.cache-mb", static_cast<double>(config.data.cache_mb), 1, 1 << 20);
  within("data.size", static_cast<double>(config.data.size), 0, 65535);
  within("data.resize", static_cast<double>(config.data.resize), 0, 65535);
  within("data.min-area", config.data.min_area, 0.0001, 1);
  within("data.brightness", config.data.brightness, 0, 100);
  within("data.contrast", config.data.contrast, 0, 100);
  within("data.saturation", config.data.saturation, 0, 100);
  within("data.hue", config.data.hue, 0, 0.5);
  within("data.randaugment", static_cast<double>(config.data.randaugment), 0, 100);
  within("data.randaugment-magnitude", static_cast<double>(config.data.randaugment_magnitude), 0,
         30);
  within("data.erase", config.data.erase, 0, 1);
  for (const auto& [key, alpha] :
       {std::pair{"data.mixup", config.data.mixup}, std::pair{"data.cutmix", config.data.cutmix}})
    if (alpha != 0) within(key, alpha, 0.01, 100);
  within("epochs", static_cast<double>(config.epochs), 1, 1 << 24);  // rng.hpp: epoch < 2^24
  within("optim.lr", config.optim.lr, 0, 1e6);
  within("optim.final-lr", config.optim.final_lr, 0, 1e6);
  within("optim.warmup-start", config.optim.warmup_start, 0, 1e6);
  within("optim.momentum", config.optim.momentum, 0, 0.999999);
  within("optim.weight-decay", config.optim.weight_decay, 0, 1);
  within("optim.label-smoothing", config.optim.label_smoothing, 0, 0.999999);
  within("optim.warmup-epochs", config.optim.warmup_epochs, 0, static_cast<double>(config.epochs));
  within("optim.factor", config.optim.factor, 0, 1);
  within("optim.power", config.optim.power, 0.01, 100);
  within("comm.bucket-mb", config.comm.bucket_mb, 0.001, 4096);
  within("comm.deadline-s", config.comm.deadline_s, 1, 1e6);
  within("liveness.timeout-s", config.liveness.timeout_s, 2, 1e6);
  within("walltime.margin-s", config.walltime.margin_s, 0, 1e6);
}

/// A key that was given but cannot have an effect: whoever gave it means another run. Not given is
/// what stands at its default, so that a saved configuration, which holds all keys, reads back.
void refuse_idle_keys(const Config& config) {
  const Config defaults;
  const auto& optim = config.optim;
  const auto idle = [&](bool used, const char* name, const std::string& why) {
    const ConfigKey& key = *find_key(name);
    require(used || key.get(config) == key.get(defaults),
            fmt::format("{} = {} would have no effect: {}", name, key.get(config), why));
  };
  const std::string decay = fmt::format("optim.decay is '{}'; ", optim.decay);
  idle(optim.decay == "cosine" || optim.decay == "polynomial", "optim.final-lr",
       decay + "'cosine' and 'polynomial' end at it");
  idle(optim.decay == "step", "optim.milestones", decay + "milestones belong to 'step'");
  idle(optim.decay == "step", "optim.factor", decay + "the factor belongs to 'step'");
  idle(optim.decay == "polynomial", "optim.power", decay + "the power belongs to 'polynomial'");
  idle(optim.warmup_epochs > 0, "optim.warmup-start", "optim.warmup-epochs is 0");
  idle(optim.momentum > 0, "optim.nesterov", "optim.momentum is 0");
  idle(config.precision == "fp16", "fuse-norms",
       fmt::format("precision is '{}'; the engines for it are fp16's", config.precision));
  idle(config.data.crop != "random", "data.min-area",
       "data.crop is 'random', which takes windows of one size");
  for (const std::uint64_t epoch : optim.milestones)
    require(epoch < config.epochs,
            fmt::format("optim.milestones = {}: {} would have no effect: the run ends with epoch "
                        "{}, and a milestone counts from the next one on",
                        join(optim.milestones, ","), epoch, config.epochs));
}

}  // namespace

void set_key(Config& config, const std::string& name, const std::string& value) {
  const ConfigKey* key = find_key(name);
  require(key != nullptr, unknown_key(name));
  key->set(config, value);
}

void apply_toml(Config& config, std::string_view text, const std::string& origin) {
  for (const TomlEntry& entry : read_toml(text, origin)) {
    if (entry.kind == TomlKind::table && is_section(entry.key)) continue;
    const std::string where = fmt::format("{}, line {}: ", origin, entry.line);
    const ConfigKey* key = find_key(entry.key);
    require(key != nullptr, where + unknown_key(entry.key));
    require(entry.kind == key->kind,
            where + fmt::format("{} takes {}", entry.key, kind_name(key->kind)));
    try {
      key->set(config, entry.value);
    } catch (const InputError& error) {
      throw InputError(where + error.what());
    }
  }
}

std::string to_toml(const Config& config) {
  std::string text, section;
  for (const ConfigKey& key : config_keys()) {
    const std::size_t dot = key.name.find('.');
    const bool top = dot == std::string::npos;
    const std::string its_section = top ? "" : key.name.substr(0, dot);
    if (its_section != section) text += fmt::format("\n[{}]\n", its_section);
    section = its_section;
    text += fmt::format("{} = {}\n", top ? key.name : key.name.substr(dot + 1),
                        toml_value(key, config));
  }
  return text;
}

void resolve(Config& config, int world) {
  check_ranges(config);
  resolve_batch(config, world);
  if (config.out.empty()) config.out = "runs/" + config.model + "-{n}";
  require(config.resume != "auto" || config.out.find("{n}") == std::string::npos,
          fmt::format("resume = auto looks for checkpoints in the run directory, but out = '{}' "
                      "names a new one each time: give the one to go on with as --out",
                      config.out));
  require(!config.data.train.empty(),
          "data.train is missing: give --data.train DIR, a folder of shards ('lockstep pack' makes "
          "them)");
  refuse_idle_keys(config);
  require(config.optim.decay != "step" || !config.optim.milestones.empty(),
          "optim.decay is 'step' but optim.milestones is empty; name the epochs, e.g. 30,60,80");
  if (config.optim.lr_for_batch != 0) {
    // The linear scaling rule (Goyal et al. 2017): k times the batch, k times the learning rate.
    config.optim.lr *= static_cast<float>(static_cast<double>(config.batch) /
                                          static_cast<double>(config.optim.lr_for_batch));
    config.optim.lr_for_batch = 0;
  }
}

std::vector<std::string> differences(const Config& before, const Config& now) {
  std::vector<std::string> found;
  for (const ConfigKey& key : config_keys()) {
    if (!key.changes_results || key.get(before) == key.get(now)) continue;
    found.push_back(fmt::format("{} ({}, now {})", key.name, key.get(before), key.get(now)));
  }
  return found;
}

}  // namespace lockstep::train
