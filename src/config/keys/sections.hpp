#pragma once

// Each section of the configuration has one table here: its keys, in the order of --help, and the
// conditions under which they have an effect.

#include <vector>

#include "lockstep/config/keys.hpp"

namespace lockstep::config {

using C = Config;  // each row of the tables names it

std::vector<ConfigKey> run_keys();  ///< without a section
std::vector<ConfigKey> model_keys();
std::vector<ConfigKey> data_keys();
std::vector<ConfigKey> optim_keys();
std::vector<ConfigKey> eval_keys();
std::vector<ConfigKey> checkpoint_keys();
std::vector<ConfigKey> comm_keys();
std::vector<ConfigKey> sync_keys();
std::vector<ConfigKey> clock_keys();
std::vector<ConfigKey> metrics_keys();
std::vector<ConfigKey> cost_keys();
std::vector<ConfigKey> watch_keys();  ///< liveness, walltime, audit, binding, preflight

// Conditions of several sections.
inline bool validates(const Config& config) { return !config.data.val.empty(); }
inline bool may_use_gpus(const Config& config) {
  return config.backend != BackendChoice::cpu && config.backend != BackendChoice::clock;
}

}  // namespace lockstep::config
