#include "lockstep/study/search/budget.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/nn/cost.hpp"
#include "lockstep/study/plan/run_study.hpp"
#include "lockstep/train/run_data.hpp"

namespace lockstep::study {
namespace {

namespace fs = std::filesystem;

double flops_of(const config::Config& config) {
  const nn::Network network = infer::make_network(config, train::trained_rows(config));
  double operations = 0;
  for (std::size_t node = 0; node < network.nodes.size(); ++node)
    operations += nn::cost_of(network, node, {}).forward.operations;
  return operations;
}

/// The keys of a training that its inference depends on, as words of a command.
std::vector<std::string> inference_words(const config::Config& config) {
  const data::DataSetInfo rows = train::trained_rows(config);
  require(
      rows.height == rows.width && rows.channels == 3,
      fmt::format("budget.latency-ms: bench inference measures square images of 3 channels, and "
                  "{} has {} x {} of {}: use budget.flops",
                  config.data.train, rows.height, rows.width, rows.channels));
  std::vector<std::string> words{"--batch",        "1",
                                 "--data.size",    std::to_string(rows.height),
                                 "--data.classes", std::to_string(rows.classes.size())};
  for (const config::ConfigKey* key : config::changed_keys(config, {})) {
    static const std::vector<std::string> such{"model",    "precision",  "threads",      "backend",
                                               "winograd", "fuse-norms", "deterministic"};
    if (key->name.starts_with("model-options.") || std::ranges::find(such, key->name) != such.end())
      words.insert(words.end(), {"--" + key->name, key->get(config)});
  }
  return words;
}

double measured_ms(const std::string& program, const std::vector<std::string>& keys) {
  const fs::path base = fs::temp_directory_path() / fmt::format("lockstep-latency-{}", ::getpid());
  const fs::path report = base.string() + ".json", log = base.string() + ".log";
  std::vector<std::string> words{program, "bench", "inference", "--json-file", report.string()};
  words.insert(words.end(), keys.begin(), keys.end());
  const auto status = wait_for_child(start_child({.words = words, .log = log}));
  const std::string said = last_line(log);
  double step_ms = 0;
  if (status == 0)
    step_ms = parse_json<nlohmann::json>(read_text(report), report.string())["step_ms"];
  std::error_code none;
  for (const fs::path& file : {report, log}) fs::remove(file, none);
  require(status == 0, fmt::format("budget.latency-ms: {} ended with status {}: {}",
                                   join(words, " "), status.value_or(-1), said));
  return step_ms;
}

}  // namespace

PointCosts point_costs(const std::string& program) {
  const auto known = std::make_shared<std::map<std::vector<std::string>, double>>();
  return {.flops = flops_of, .latency_ms = [program, known](const config::Config& config) {
            const std::vector<std::string> keys = inference_words(config);
            const auto [at, is_new] = known->try_emplace(keys, 0.0);
            if (is_new) at->second = measured_ms(program, keys);
            return at->second;
          }};
}

Excess excess_of(const Budget& budget, const PointCosts& costs, const config::Config& config) {
  if (budget.flops > 0 && costs.flops) {
    const double flops = costs.flops(config);
    if (flops > budget.flops) return {"flops", flops, budget.flops};
  }
  if (budget.latency_ms > 0 && costs.latency_ms) {
    const double ms = costs.latency_ms(config);
    if (ms > budget.latency_ms) return {"latency-ms", ms, budget.latency_ms};
  }
  return {};
}

}  // namespace lockstep::study
