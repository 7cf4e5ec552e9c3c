#include "app/trained/trained_model.hpp"

#include <filesystem>

#include "lockstep/base/log.hpp"
#include "lockstep/train/files/run_directory.hpp"

namespace lockstep::app {

std::string choose_checkpoint(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return path;
  std::filesystem::path folder = train::RunDirectory(path).checkpoints();
  if (!std::filesystem::is_directory(folder)) folder = path;
  const model::CheckpointDirectory found(folder, 1);
  if (std::filesystem::exists(found.best())) return found.best().string();
  const auto newest = found.newest_valid();
  require(newest.has_value(), fmt::format("{}: holds no checkpoint", path));
  return newest->string();
}

config::Config settings_of(const std::string& checkpoint, const std::string& precision) {
  const model::CheckpointHeader header = model::read_header(checkpoint);
  config::Config config;
  try {
    config::apply_toml(config, header.config, checkpoint);
  } catch (const InputError& error) {
    if (!header.explains_itself()) throw;
    log::warn(fmt::format("{}; its configuration is ignored", error.what()));
    config = {};
  }
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
