// The recipes in jobs/recipes: their keys exist and fit, and their learning rates are the sources'.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/config/recipe.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/train/specs.hpp"
#include "tests/unit/config/config_fixture.hpp"

using namespace lockstep;
using namespace lockstep::config;
using Catch::Contains;

namespace {

constexpr double imagenet_rows = 1281167, cifar_rows = 50000;

Config of(const std::string& name) {
  Config config = test::with_data();
  const std::string path = "jobs/recipes/" + name + ".toml";
  apply_toml(config, read_text(path), path);
  resolve(config, 1);
  return config;
}

/// Steps of an epoch, without its uneven last one.
double steps_per_epoch(const Config& config, double rows) {
  return std::floor(rows / static_cast<double>(config.batch));
}

/// mlcommons/training, lars_util.py: linear warm-up, then a polynomial of power 2 down to 1e-4. The
/// warm-up counts steps from 1, as MXNet's schedules do.
struct Mlperf {
  double lr, warmup_epochs, momentum, weight_decay, reference_decay_steps;
  bool decay_counts_warmup = false;
  std::size_t batch;
};
const std::map<std::string, Mlperf> mlperf = {
    {"mlperf-4k", {10, 5, 0.9, 2e-4, 13137, false, 4096}},
    {"mlperf-8k", {17, 5, 0.9, 2e-4, 6095, false, 8192}},
    {"mlperf-32k", {21.2, 16, 0.94, 2.5e-5, 2267, true, 32768}},
    {"mlperf-64k", {24.699, 31, 0.951807, 1e-4, 1133, false, 65536}}};

double mlperf_lr(const Mlperf& of, double step, double warmup_steps, double decay_steps) {
  if (step < warmup_steps) return of.lr * (step + 1) / warmup_steps;
  const double left = 1 - (step - warmup_steps) / decay_steps;
  return (of.lr - 1e-4) * left * left + 1e-4;
}

/// Compares the schedule with `want`, a function of the step, at the steps of warm-up, middle, end.
void check_schedule(const Config& config, double rows, const std::function<double(double)>& want) {
  const double per_epoch = steps_per_epoch(config, rows);
  const auto schedule = train::make_schedule(config, static_cast<std::uint64_t>(per_epoch));
  const double warmup = std::round(static_cast<double>(config.optim.warmup_epochs) * per_epoch),
               all = static_cast<double>(config.epochs) * per_epoch;
  for (const double step :
       {0.0, 1.0, std::floor(warmup / 2), warmup - 1, warmup, warmup + 1, std::floor(all / 3),
        std::floor(all / 2), std::floor(0.9 * all), all - 1}) {
    if (step < 0) continue;
    INFO("step " << step << " of " << all);
    const double got = optim::learning_rate(schedule, static_cast<std::uint64_t>(step));
    CHECK(std::abs(got - want(step)) <= 1e-6 * static_cast<double>(config.optim.lr));
  }
}

}  // namespace

TEST_CASE("every recipe has only keys that exist, says what it is, and fits its own batch",
          "[recipe]") {
  std::size_t found = 0;
  for (const auto& file : std::filesystem::directory_iterator("jobs/recipes")) {
    ++found;
    const std::string name = file.path().stem().string();
    INFO(name);
    const Config config = of(name);
    const Recipe recipe{name, file.path().string(), read_text(file.path())};
    const RecipeNotes notes = recipe_notes(recipe, config);
    CHECK(notes.other_batch.empty());
    CHECK(notes.sets.find("; but") == std::string::npos);
    CHECK_THAT(notes.sets, Contains("recipe " + name + ": ResNet-") && Contains("optim.lr = "));
  }
  CHECK(found == 9);
}

TEST_CASE("MLPerf's recipes have the rates of its reference points", "[recipe]") {
  for (const auto& [name, point] : mlperf) {
    INFO(name);
    const Config config = of(name);
    CHECK(config.batch == point.batch);
    CHECK(config.model == "resnet50");
    CHECK(config.optim.rule == optim::Rule::lars);
    CHECK(config.optim.trust == 0.001f);
    CHECK(config.optim.momentum == static_cast<float>(point.momentum));
    CHECK(config.optim.weight_decay == static_cast<float>(point.weight_decay));
    CHECK_FALSE(config.optim.decay_norm_and_bias);
    const double per_epoch = steps_per_epoch(config, imagenet_rows);
    const double warmup = point.warmup_epochs * per_epoch,
                 decay = static_cast<double>(config.epochs) * per_epoch - warmup;
    // Whole epochs, and the reference may count the uneven last step.
    const double counted = point.decay_counts_warmup ? decay + warmup : decay;
    CHECK(std::abs(counted - point.reference_decay_steps) <=
          static_cast<double>(config.epochs) + 1);
    check_schedule(config, imagenet_rows,
                   [&](double step) { return mlperf_lr(point, step, warmup, decay); });
  }
}

TEST_CASE("torchvision's recipes have the rates of its schedulers", "[recipe]") {
  const Config classic = of("torchvision-classic"), recent = of("torchvision-new");
  double per_epoch = steps_per_epoch(classic, imagenet_rows);
  // StepLR(step_size=30, gamma=0.1), by epochs.
  check_schedule(classic, imagenet_rows, [&](double step) {
    return 0.1 * std::pow(0.1, std::floor(std::floor(step / per_epoch) / 30));
  });
  CHECK(classic.optim.weight_decay == 1e-4f);
  // LinearLR(start_factor=0.01, total_iters=5), then CosineAnnealingLR(T_max=595): by steps here.
  per_epoch = steps_per_epoch(recent, imagenet_rows);
  check_schedule(recent, imagenet_rows, [&](double step) {
    const double epoch = step / per_epoch;
    if (epoch < 5) return 0.5 * (0.01 + 0.99 * (epoch + 1 / per_epoch) / 5);
    return 0.25 * (1 + std::cos(std::numbers::pi * (epoch - 5) / 595));
  });
  CHECK(recent.optim.weight_decay == 2e-5f);
  CHECK(recent.batch == 8 * 128);
  CHECK(recent.optim.label_smoothing == 0.1f);
}

TEST_CASE("LAMB's and CIFAR-10's recipes have the rates of their sources", "[recipe]") {
  const Config rsb = of("rsb-a3");
  CHECK(rsb.optim.rule == optim::Rule::lamb);
  CHECK(rsb.batch == 8 * 256);
  const double per_epoch = steps_per_epoch(rsb, imagenet_rows);
  check_schedule(rsb, imagenet_rows, [&](double step) {
    const double epoch = step / per_epoch;
    if (epoch < 5) return 0.008 * (epoch + 1 / per_epoch) / 5;
    return 0.004 * (1 + std::cos(std::numbers::pi * (epoch - 5) / 95));
  });
  // He et al.: 0.1, divided by 10 after 32,000 and 48,000 of 64,000 steps; in whole epochs of 390.
  const Config he = of("cifar10-he");
  const double each = steps_per_epoch(he, cifar_rows);
  CHECK(std::abs(82 * each - 32000) <= each);
  CHECK(std::abs(123 * each - 48000) <= each);
  CHECK(std::abs(static_cast<double>(he.epochs) * each - 64000) <= each);
  check_schedule(he, cifar_rows, [&](double step) {
    return step < 82 * each ? 0.1 : step < 123 * each ? 0.01 : 0.001;
  });
  // MultiStepLR(milestones=[100, 150]).
  check_schedule(of("cifar10-200"), cifar_rows, [&](double step) {
    return step < 100 * each ? 0.1 : step < 150 * each ? 0.01 : 0.001;
  });
}

TEST_CASE("what is given instead of a recipe's key is named, and another batch has its own line",
          "[recipe]") {
  const Recipe recipe{"mlperf-8k", "jobs/recipes/mlperf-8k.toml",
                      read_text("jobs/recipes/mlperf-8k.toml")};
  Config config = of("mlperf-8k");
  config.batch = 1024;
  config.optim.lr = 4;
  const RecipeNotes notes = recipe_notes(recipe, config);
  CHECK_THAT(notes.sets, Contains("; but batch = 1024, optim.lr = 4"));
  CHECK_THAT(notes.other_batch, Contains("recipe mlperf-8k is for a global batch of 8192 rows, and "
                                         "this run has 1024"));
}

TEST_CASE("a recipe's key gives way where a key given in addition leaves it without effect",
          "[recipe]") {
  using Keys = std::map<std::string, std::string>;
  // The keys that then differ from the recipe's.
  const auto differs = [](const std::string& name, const Keys& given) {
    const std::string path = "jobs/recipes/" + name + ".toml";
    const Recipe recipe{name, path, read_text(path)};
    Config config = test::with_data();
    apply_toml(config, recipe.text, path);
    std::set<std::string> names;
    for (const auto& [key, value] : given) {
      set_key(config, key, value);
      names.insert(key);
    }
    leave_out_idle_keys(config, recipe, names);
    resolve(config, 1);
    const std::string sets = recipe_notes(recipe, config).sets;
    return sets.substr(std::min(sets.size(), sets.find("; but ")));
  };
  CHECK(differs("cifar10-he", {{"optim.decay", "cosine"}}) ==
        "; but optim.decay = cosine, no optim.milestones");
  CHECK(differs("torchvision-classic", {{"optim.decay", "constant"}}) ==
        "; but optim.decay = constant, no optim.milestones");
  CHECK(differs("cifar10-he", {{"epochs", "100"}}) == "; but epochs = 100, optim.milestones = 82");
  CHECK_THROWS_WITH(differs("cifar10-he", {{"epochs", "50"}}), Contains("optim.milestones"));
  CHECK(differs("mlperf-8k", {{"optim.rule", "sgd"}}) == "; but optim.rule = sgd");
  CHECK(differs("mlperf-4k", {{"optim.decay", "cosine"}}) == "; but optim.decay = cosine");
  CHECK_THAT(differs("rsb-a3", {{"data.randaugment", "0"}}), Contains("randaugment-magnitude"));
  CHECK_THAT(differs("torchvision-new", {{"optim.warmup-epochs", "0"}}),
             Contains("optim.warmup-start"));
  // What was given stays, and is named where it has no effect.
  CHECK_THROWS_WITH(
      differs("cifar10-he", {{"optim.decay", "cosine"}, {"optim.milestones", "82,123"}}),
      Contains("optim.milestones = 82,123 would have no effect"));
}

TEST_CASE("no value of a choice or a switch leaves a recipe's other keys without effect",
          "[recipe]") {
  for (const auto& file : std::filesystem::directory_iterator("jobs/recipes")) {
    const Recipe recipe{file.path().stem().string(), file.path().string(), read_text(file.path())};
    for (const ConfigKey& key : config_keys()) {
      std::vector<std::string> values = key.choices;
      if (key.kind == TomlKind::boolean) values = {"true", "false"};
      if (key.range && (key.range->or_zero || key.range->low <= 0)) values.push_back("0");
      for (const std::string& value : values) {
        Config config;
        apply_toml(config, recipe.text, recipe.path);
        key.set(config, value);
        leave_out_idle_keys(config, recipe, {key.name});
        for (const TomlEntry& entry : read_toml(recipe.text, recipe.path)) {
          const ConfigKey& its = *find_key(entry.key);
          if (its.name == key.name || !its.need || its.need->met(config)) continue;
          INFO(recipe.name << " with " << key.name << " = " << value << ": " << its.name);
          CHECK(its.get(config) == its.get(Config()));
        }
      }
    }
  }
}
