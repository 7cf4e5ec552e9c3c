#include "app/run_options.hpp"

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/train/config_keys.hpp"

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
    case train::TomlKind::table:
    case train::TomlKind::other:
      break;
  }
  return "";
}

}  // namespace

void RunOptions::add_to(Arguments app) {
  app_ = app;
  app.allow_unknown();  // config() knows better what the user may have meant
  app.add("--config", file_, "TOML file with any of the keys below; [optim] lr is optim.lr")
      .called("FILE");
  const train::Config defaults;
  for (const train::ConfigKey& key : train::config_keys()) {
    const std::size_t dot = key.name.find('.');
    std::string names = "--" + key.name;
    if (key.name == "binding.require") names += ",--require-binding";
    if (key.name == "preflight.check") names += ",--preflight";
    if (key.name == "preflight.require") names += ",--require-preflight";
    if (key.name == "comm.share-gpu") names += ",--share-gpu";
    const auto take = [this, name = key.name](const std::string& value) { given_[name] = value; };
    Argument option = app.add_taken(names, take, key.help);
    // Like a flag, so that a bare --data.flip means true; but a value may follow.
    if (key.kind == train::TomlKind::boolean) option.value_is_optional();
    option.called(type_name(key.kind))
        .shows(key.get(defaults))
        .under(dot == std::string::npos ? "Run" : "[" + key.name.substr(0, dot) + "]");
  }
}

train::Config RunOptions::config() const {
  train::Config config;
  if (const std::vector<std::string> unknown = app_->unknown(); !unknown.empty()) {
    const std::string& first = unknown.front();
    require(first.starts_with("--"),
            fmt::format("'{}' was not expected: options begin with --", first));
    train::set_key(config, first.substr(2, first.find('=') - 2), "");  // says which key is near
  }
  if (app_->given("--config")) {
    require(!file_.empty(), "--config names no file");
    train::apply_toml(config, read_text(file_), file_);
  }
  for (const auto& [name, value] : given_) train::set_key(config, name, value);
  return config;
}

}  // namespace lockstep::app
