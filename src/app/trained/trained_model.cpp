#include "app/trained/trained_model.hpp"

#include <array>

#include "lockstep/base/log.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/model/formats/formats.hpp"

namespace lockstep::app {
namespace {

/// The keys that the bits of an evaluation depend on.
constexpr std::array<const char*, 3> computing_keys = {"precision", "winograd", "fuse-norms"};

config::Config settings_in_weights(const std::string& path, const model::Model& model) {
  config::Config config;
  of_checkpoint(path, [&] {
    for (const char* key : computing_keys)
      if (const auto found = model.settings.find(key); found != model.settings.end())
        config::set_key(config, key, found->second);
  });
  return config;
}

config::Config settings_in_checkpoint(const std::string& path) {
  const model::CheckpointHeader header = model::read_header(path);
  config::Config config;
  try {
    config::apply_toml(config, header.config, path);
  } catch (const InputError& error) {
    if (!header.explains_itself()) throw;
    log::warn(fmt::format("{}; its configuration is ignored", error.what()));
    config = {};
  }
  return config;
}

}  // namespace

void keep_settings(model::Model& model, const config::Config& config) {
  for (const char* key : computing_keys) model.settings[key] = config::find_key(key)->get(config);
}

config::Config settings_of(const std::string& checkpoint, const model::Model& model) {
  return model::is_weights_file(checkpoint) ? settings_in_weights(checkpoint, model)
                                            : settings_in_checkpoint(checkpoint);
}

config::Config settings_of(const std::string& checkpoint, const std::string& precision) {
  config::Config config = settings_in_checkpoint(checkpoint);
  if (!precision.empty()) config::set_key(config, "precision", precision);
  return config;
}

data::DataSetInfo input_of(const model::Description& about, const data::DataSetInfo* rows) {
  data::DataSetInfo input = about.input;
  if (!input.classes.empty()) return input;
  const std::size_t classes = about.network.classes;
  if (rows != nullptr && rows->classes.size() == classes) input.classes = rows->classes;
  while (input.classes.size() < classes)
    input.classes.push_back(std::to_string(input.classes.size()));
  return input;
}

}  // namespace lockstep::app
