#include "lockstep/config/keys.hpp"

#include "config/keys/sections.hpp"

namespace lockstep::config {

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> all = [] {
    std::vector<ConfigKey> keys;
    for (const auto& section :
         {run_keys(), model_keys(), data_keys(), optim_keys(), eval_keys(), checkpoint_keys(),
          comm_keys(), sync_keys(), clock_keys(), watch_keys(), metrics_keys(), cost_keys()})
      keys.insert(keys.end(), section.begin(), section.end());
    return keys;
  }();
  return all;
}

std::vector<const ConfigKey*> changed_keys(const Config& config, const Config& other) {
  std::vector<const ConfigKey*> changed;
  for (const ConfigKey& key : config_keys())
    if (key.get(config) != key.get(other)) changed.push_back(&key);
  return changed;
}

Config alone(Config config) {
  for (const ConfigKey* key : changed_keys(config))
    if (key->between_ranks) key->set(config, key->get({}));
  return config;
}

const ConfigKey* find_key(std::string_view name) {
  for (const ConfigKey& key : config_keys())
    if (key.name == name) return &key;
  return nullptr;
}

}  // namespace lockstep::config
