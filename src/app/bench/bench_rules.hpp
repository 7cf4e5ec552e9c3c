#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "app/bench/bench_steps.hpp"

namespace lockstep::app {

/// Training by another update rule, whose steps are timed in turn with SGD's.
struct RuleTrial {
  std::string name;
  std::unique_ptr<train::Trainer> trainer;
  StepSeries series = {};
};

/// One for each rule but SGD, warmed up by that many steps. Collective.
std::vector<RuleTrial> rule_trials(StepBench& bench, std::size_t warm_up);

/// Adds "rules", if there are any: by rule the medians of its steps' and updates' times, and of
/// each step's ratio to SGD's in the same turn.
void add_rules(const std::vector<RuleTrial>& trials, const StepSeries& sgd,
               nlohmann::ordered_json& json);

}  // namespace lockstep::app
