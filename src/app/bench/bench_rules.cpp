#include "app/bench/bench_rules.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/statistics.hpp"

namespace lockstep::app {

std::vector<RuleTrial> rule_trials(StepBench& bench, std::size_t warm_up) {
  require(bench.config().optim.rule == optim::Rule::sgd,
          "--rules compares other rules with SGD: leave out optim.rule");
  std::vector<RuleTrial> trials;
  const std::pair<const char*, optim::Formula> rules[] = {
      {"lars", optim::Lars{}}, {"lamb", optim::Lamb{}}, {"muon", optim::Muon{}}};
  for (const auto& [name, formula] : rules) {
    train::TrainerSpec other = bench.run().trainer_spec();
    other.formula = formula;
    trials.push_back({name, std::make_unique<train::Trainer>(other, bench.run().backend(),
                                                             bench.run().reducing())});
    bench.steps(*trials.back().trainer, warm_up);
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
