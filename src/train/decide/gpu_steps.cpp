#include "lockstep/train/decide/gpu_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/train/specs.hpp"
#include "train/decide/decide.hpp"

namespace lockstep::train {
namespace {

using config::Switch;

/// With a key that the run had as `then`, where this start leaves it open.
Switch continued(Switch asked, Switch then, bool deterministic) {
  if (asked != Switch::automatic) return asked;
  return then == Switch::on && deterministic ? Switch::off : then;
}

bool has_norms(const nn::Network& network) {
  return std::ranges::any_of(network.nodes,
                             [](const nn::Node& node) { return node.op == nn::Op::batch_norm; });
}

}  // namespace

config::Config GpuSteps::in(config::Config asked) const {
  const auto decided = [](bool on) { return on ? Switch::on : Switch::off; };
  asked.graph = decided(graph);
  asked.tune = decided(tune);
  asked.fuse_norms = decided(fuse_norms);
  return asked;
}

GpuSteps choose_gpu_steps(const GpuStepsSetting& setting) {
  const auto decided = [&](Switch asked, bool possible) {
    return asked == Switch::automatic ? setting.on_gpus && possible : asked == Switch::on;
  };
  const bool any_bits = !setting.deterministic;
  return {
      .graph = decided(setting.graph, !setting.steps_differ),
      .tune = decided(setting.tune, any_bits),
      .fuse_norms = decided(setting.fuse_norms, any_bits && setting.trains_norms &&
                                                    setting.precision == backend::Precision::fp16)};
}

GpuStepsSetting keep_bits(const GpuStepsSetting& asked, const config::Config& before) {
  using enum config::BackendChoice;
  GpuStepsSetting kept = asked;
  const bool had_gpus = before.backend != cpu && before.backend != clock;
  if (!asked.on_gpus || !had_gpus || before.precision != asked.precision) return kept;
  kept.tune = continued(asked.tune, before.tune, asked.deterministic);
  kept.fuse_norms = continued(asked.fuse_norms, before.fuse_norms, asked.deterministic);
  return kept;
}

std::string describe_gpu_steps(const GpuStepsSetting& setting, const GpuSteps& chosen,
                               const std::string& plans) {
  std::vector<std::string> ways, keys;
  const auto add = [&](Switch asked, bool is, const char* key, std::string way) {
    if (asked != Switch::automatic || !is) return;
    keys.emplace_back(key);
    ways.push_back(std::move(way));
  };
  add(setting.graph, chosen.graph, "--graph", "steps as a CUDA graph");
  add(setting.tune, chosen.tune, "--tune", fmt::format("engines by measurement ({})", plans));
  add(setting.fuse_norms, chosen.fuse_norms, "--fuse-norms", "batch norms fused");
  if (keys.empty()) return "";
  const std::string last = keys.back();
  keys.pop_back();
  return fmt::format("on this GPU: {}; {}{}{} change{} that", join(ways, ", "), join(keys, ", "),
                     keys.empty() ? "" : " and ", last, keys.empty() ? "s" : "");
}

GpuStepsSetting gpu_steps_setting(const config::Config& config, const nn::Network& network,
                                  int replicas, bool on_gpus) {
  return {.graph = config.graph,
          .tune = config.tune,
          .fuse_norms = config.fuse_norms,
          .on_gpus = on_gpus,
          .precision = config.precision,
          .deterministic = config.deterministic,
          .steps_differ = !config::why_steps_differ(config, replicas).empty(),
          .trains_norms = has_norms(nn::trained_part(network))};
}

GpuSteps decide_gpu_steps(const StartSetting& setting) {
  const config::Config& config = setting.spec.config;
  const GpuStepsSetting asked =
      gpu_steps_setting(config, infer::make_network(config, setting.data.input()),
                        setting.spec.grid.replicas.count, setting.backend.name() == "cuda");
  const GpuSteps chosen =
      choose_gpu_steps(setting.resume ? keep_bits(asked, written_config(*setting.resume)) : asked);
  const std::string said = describe_gpu_steps(asked, chosen, plan_file(config));
  if (setting.control.rank() == 0 && !said.empty()) log::info(said);
  return chosen;
}

}  // namespace lockstep::train
