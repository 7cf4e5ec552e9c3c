#include "run_options.hpp"

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"

namespace lockstep::app {
namespace {

const char* type_name(train::TomlKind kind) {
  switch (kind) {
    case train::TomlKind::text:
      return "TEXT";
    case train::TomlKind::number:
      return "NUMBER";
    case train::TomlKind::boolean:
      return "[true|false]";
    case train::TomlKind::list:
      return "N,N,...";
  }
  return "";
}

}  // namespace

void RunOptions::add_to(CLI::App& app) {
  app_ = &app;
  app.allow_extras();  // config() knows better what the user may have meant
  app.add_option("--config", file_, "TOML file with any of the keys below; [optim] lr is optim.lr")
      ->type_name("FILE");
  const train::Config defaults;
  for (const train::ConfigKey& key : train::config_keys()) {
    const std::size_t dot = key.name.find('.');
    std::string names = "--" + key.name;
    if (key.name == "binding.require") names += ",--require-binding";
    if (key.name == "preflight.check") names += ",--preflight";
    if (key.name == "preflight.require") names += ",--require-preflight";
    if (key.name == "comm.share-gpu") names += ",--share-gpu";
    const auto take = [this, name = key.name](const std::string& value) { given_[name] = value; };
    CLI::Option* option = app.add_option_function<std::string>(names, take, key.help);
    // Like a flag, so that a bare --data.flip means true; but a value may follow.
    if (key.kind == train::TomlKind::boolean) option->expected(0)->expected(0, 1);
    option->type_name(type_name(key.kind))
        ->default_str(key.get(defaults))
        ->group(dot == std::string::npos ? "Run" : "[" + key.name.substr(0, dot) + "]");
  }
}

train::Config RunOptions::config() const {
  train::Config config;
  if (const std::vector<std::string> unknown = app_->remaining(); !unknown.empty()) {
    const std::string& first = unknown.front();
    require(first.starts_with("--"),
            fmt::format("'{}' was not expected: options begin with --", first));
    train::set_key(config, first.substr(2, first.find('=') - 2), "");  // says which key is near
  }
  if (app_->count("--config") > 0) {
    require(!file_.empty(), "--config names no file");
    train::apply_toml(config, read_text(file_), file_);
  }
  for (const auto& [name, value] : given_) train::set_key(config, name, value);
  return config;
}

}  // namespace lockstep::app
