#include "app/cli/run_options.hpp"

#include <filesystem>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/data/external/external.hpp"

namespace lockstep::app {
namespace {

/// An option as the key is, for every command.
Argument add_option(Arguments app, const config::ConfigKey& key,
                    const std::function<void(const std::string&)>& take) {
  std::string names = "--" + key.name;
  if (!key.other_name.empty()) names += fmt::format(",--{}", key.other_name);
  Argument option = app.add_taken(names, take, key.help);
  // A flag, so that --data.flip alone means true; but a value may follow.
  if (key.takes_no_value()) option.value_is_optional();
  option.called(key.values()).ranges(key.range_text()).shows(key.usual_value());
  return option;
}

}  // namespace

void RunOptions::add_to(Arguments app, KeysOf shown) {
  app_ = app;
  app.allow_unknown();  // config() gives a better hint at what the user may have meant
  app.add("--config", file_, "TOML file with any of the keys; [optim] lr is optim.lr")
      .called("FILE");
  app.add("--recipe", recipe_,
          "set the keys of a published recipe, and print them; those given in addition take "
          "precedence (an unknown name lists all)")
      .called("NAME");
  for (const config::ConfigKey& key : config::config_keys()) {
    const std::size_t dot = key.name.find('.');
    const auto take = [this, name = key.name](const std::string& value) { given_[name] = value; };
    add_option(app, key, take)
        .under(dot == std::string::npos ? "run" : key.name.substr(0, dot),
               shown == KeysOf::first_help && key.is_usual);
  }
}

bool RunOptions::given() const {
  return app_->given("--config") || !given_.empty() || !app_->unknown().empty();
}

void RunOptions::refuse_those_of_runs(std::string_view why) const {
  for (const auto& [name, value] : given_)
    if (const config::ConfigKey* key = config::find_key(name); key && key->of_a_run)
      throw InputError(fmt::format("--{} has no effect here: {}; leave it out", name, why));
}

config::Config RunOptions::config(config::Config defaults) const {
  apply(defaults);
  return defaults;
}

config::Config RunOptions::of_steps(std::string_view why, config::Config defaults) const {
  refuse_those_of_runs(why);
  apply(defaults);
  defaults.resume.clear();
  defaults.optim.warmup_epochs = 0;
  defaults.sync.from_epoch = defaults.comm.power_sgd_from_epoch = 0;
  return defaults;
}

config::Config RunOptions::config_of_run(const train::RunDirectory& run) const {
  const std::string root = run.root().string(), file = run.config().string();
  std::error_code none;
  require(std::filesystem::exists(file, none),
          fmt::format("{}: is not the folder of a run: it has no config.toml", root));
  require(given_.count("resume") == 0 && given_.count("out") == 0,
          "resume continues the run where it is: --resume and --out belong to train");
  require(!app_->given("--recipe"),
          "resume continues the run with its keys: --recipe belongs to train");
  config::Config config = config::config_in(read_text(file), file);
  config.out = root;  // it may have been moved
  config.resume = "auto";
  apply(config);
  const auto file_of = [](const std::string& labels) {
    return data::labels_place({.images = "", .labels = labels}).file;
  };
  for (const auto& [name, path] :
       {std::pair{"data.train", config.data.train}, std::pair{"data.val", config.data.val},
        std::pair{"data.labels", file_of(config.data.labels)},
        std::pair{"data.val-labels", file_of(config.data.val_labels)}})
    if (given_.count(name) == 0) train::require_here(run, path, fmt::format("--{}", name));
  return config;
}

void RunOptions::apply(config::Config& config) const {
  if (const std::vector<std::string> unknown = app_->unknown(); !unknown.empty()) {
    const std::string& first = unknown.front();
    require(first.starts_with("--"),
            fmt::format("'{}' was not expected: options begin with --", first));
    config::set_key(config, first.substr(2, first.find('=') - 2), "");  // names the nearest key
  }
  // A recipe's batch gives way to batch-per-rank, too.
  std::size_t recipe_batch = 0;
  if (const auto recipe = this->recipe()) {
    config::apply_toml(config, recipe->text, recipe->path);
    recipe_batch = std::exchange(config.batch, 0);
  }
  std::set<std::string> given;
  if (app_->given("--config")) {
    require(!file_.empty(), "--config names no file");
    require(!std::filesystem::is_directory(file_),
            fmt::format("--config {0}: is a folder; a run's keys are in {0}/config.toml", file_));
    given = config::apply_toml(config, read_text(file_), file_);
  }
  for (const auto& [name, value] : given_) {
    config::set_key(config, name, value);
    given.insert(name);
  }
  if (const auto recipe = this->recipe()) config::leave_out_idle_keys(config, *recipe, given);
  if (config.batch == 0 && config.batch_per_rank == 0) config.batch = recipe_batch;
}

std::optional<config::Recipe> RunOptions::recipe() const {
  if (app_->given("--recipe") && !found_) found_ = config::find_recipe(recipe_);
  return found_;
}

void add_key(Arguments app, const config::ConfigKey& key, config::Config& config) {
  const auto take = [&config, name = key.name](const std::string& value) {
    config::set_key(config, name, value);
  };
  add_option(app, key, take);
}

void add_precision(Arguments app, std::string& precision) {
  app.add("--precision", precision, "arithmetic of the convolutions")
      .called(config::find_key("precision")->values())
      .shows("as trained");
}

void add_data_keys(Arguments app, DataKeys& keys) {
  for (const config::ConfigKey& key : config::config_keys()) {
    const auto take = [&keys, name = key.name](const std::string& value) { keys[name] = value; };
    if (key.for_external) add_option(app, key, take);
  }
}

void take_data_keys(const DataKeys& keys, config::Config& config) {
  for (const auto& [name, value] : keys) {
    config::set_key(config, name, value);
    if (name == "data.images") config.data.val_images = value;
    if (name == "data.labels") config.data.val_labels = value;
  }
}

}  // namespace lockstep::app
