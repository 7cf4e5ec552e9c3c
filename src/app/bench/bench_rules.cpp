#include "app/bench/bench_rules.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/statistics.hpp"

namespace lockstep::app {

std::vector<RuleTrial> rule_trials(comm::Control& control, const StepOptions& options,
                                   const train::TrainerSpec& spec, backend::Backend& backend,
                                   comm::Communicator& replicas, const Synthetic& data,
                                   bool wanted) {
  std::vector<RuleTrial> trials;
  if (!wanted) return trials;
  const std::pair<const char*, optim::Formula> rules[] = {
      {"lars", optim::Lars{}}, {"lamb", optim::Lamb{}}, {"muon", optim::Muon{}}};
  for (const auto& [name, formula] : rules) {
    train::TrainerSpec other = spec;
    other.formula = formula;
    trials.push_back({name, std::make_unique<train::Trainer>(other, backend, replicas)});
    warm_up(control, options, *trials.back().trainer, data);
  }
  return trials;
}

void add_rules(const std::vector<RuleTrial>& trials, const StepSeries& sgd,
               nlohmann::ordered_json& json) {
  for (const RuleTrial& trial : trials) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < sgd.step.size(); ++i)
      ratios.push_back(trial.series.step[i] / sgd.step[i]);
    json["rules"][trial.name] = {{"step_ms", upper_median(trial.series.step)},
                                 {"update_ms", upper_median(trial.series.update)},
                                 {"ratio", upper_median(ratios)}};
  }
}

}  // namespace lockstep::app
