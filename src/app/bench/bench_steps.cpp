#include "app/bench/bench_steps.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/cli/command_line.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/base/share.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/train/run_data.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {

namespace {

using Json = nlohmann::ordered_json;

constexpr float rate = 1e-3f;  // no batch may diverge

void add_loss(const train::StepReport& report, StepSeries& series) {
  if (report.skipped()) return;  // where gradients overflow, the loss often does, too
  series.loss += report.metrics.loss;
  series.rows += static_cast<double>(report.metrics.rows);
}

}  // namespace

void StepOptions::add_to(Arguments app) {
  run.add_to(app);
  add_count(app, "--steps", steps, {1, 1'000'000}, "steps to measure");
  add_count(app, "--warm-up", warm_up, {0, 1'000'000}, "steps before those");
  add_json_file(app, json, "write the figures to this file");
}

config::Config StepOptions::config() const {
  return run.of_steps("a benchmark makes steps that are thrown away, and has no run");
}

void StepOptions::check(const Supposed& supposed) const {
  config::Config training = config();
  if (!supposed.whole) return;
  config::resolve(training, supposed.ranks);
  train::make_trainer_spec(training, train::synthetic_rows(training), supposed.ranks);
}

Synthetic::Synthetic(const nn::Network& network, std::size_t rows, std::uint64_t seed,
                     device::Device& device)
    : images(device.allocate_pinned(rows * network.input.count())), targets(rows) {
  for (std::size_t i = 0; i < images.size(); ++i)
    images.data()[i] = static_cast<std::byte>(philox(seed, i, 0).word[0]);
  for (std::size_t i = 0; i < rows; ++i) {
    const auto label = static_cast<std::int32_t>(
        below(philox(seed, i, 1).word[0], static_cast<std::uint32_t>(network.classes)));
    targets[i] = {label, label, 1};
  }
  batch.images = reinterpret_cast<const std::uint8_t*>(images.data());
  batch.targets = targets.data();
  batch.rows = batch.capacity = rows;
}

Json described(const config::Config& config, int ranks, const backend::Backend& backend) {
  return {{"model", config.model},
          {"precision", to_string(config.precision)},
          {"batch", config.batch},
          {"ranks", ranks},
          {"backend", backend.description()}};
}

void add_speed(const std::vector<double>& steps_ms, Json& json) {
  json["steps"] = steps_ms.size();
  json["step_ms"] = upper_median(steps_ms);
  json["best_step_ms"] = *std::ranges::min_element(steps_ms);
  json["images_per_s"] = 1e3 * json["batch"].get<double>() / upper_median(steps_ms);
}

std::string title_of(const Json& json) {
  const auto text = [&](const char* name) { return json[name].get<std::string>(); };
  return fmt::format("{} {} batch {} on {} x {}", text("model"), text("precision"),
                     json["batch"].dump(), json["ranks"].dump(), text("backend"));
}

double peak_memory(comm::Control& control) {
  return control.sum({static_cast<double>(peak_resident_bytes())}, "peak memory")[0];
}

StepBench::StepBench(const train::RunSpec& spec, backend::Backend& backend,
                     comm::Communicator& communicator, comm::Control& control)
    : control_(control),
      run_(spec, backend, communicator, control),
      data_(run_.trainer_spec().network,
            train::own_rows(config().batch, config().shards, spec.grid.replicas),
            static_cast<std::uint64_t>(control.rank()), backend.device()) {}

void StepBench::step(train::Trainer& trainer, StepSeries* series) {
  const double begin = now_ms();
  const train::NextBatch same{data_.batch, config().batch};
  const train::StepReport report =
      trainer.step(data_.batch, config().batch, rate, [&] { return std::optional(same); });
  StepSeries mine{{now_ms() - begin}, {report.times}};
  add_loss(report, mine);
  StepSeries one;
  add(mine, series != nullptr ? *series : one);
}

/// The slowest rank's times of these steps, and the loss of all ranks.
void StepBench::add(const StepSeries& mine, StepSeries& series) {
  std::vector<double> values = mine.step;
  for (const observe::StepTimes& times : mine.parts)
    for (const observe::StepPart& part : observe::step_parts) values.push_back(times.*part.step);
  values = control_.max(values, "steps");
  auto value = values.begin();
  for (std::size_t i = 0; i < mine.step.size(); ++i) series.step.push_back(*value++);
  for (std::size_t i = 0; i < mine.parts.size(); ++i)
    for (observe::StepTimes& times = series.parts.emplace_back();
         const observe::StepPart& part : observe::step_parts)
      times.*part.step = *value++;
  const std::vector<double> loss = control_.sum({mine.loss, mine.rows}, "loss");
  if (!std::isfinite(loss[0]))
    throw Error(fmt::format("the loss of the benchmark's rows is {}: its speed would be of steps "
                            "that compute nothing",
                            loss[0]),
                Ending::diverged);
  series.loss += loss[0];
  series.rows += loss[1];
}

void StepBench::steps(train::Trainer& trainer, std::size_t count, StepSeries* series) {
  for (std::size_t i = 0; i < count; ++i) step(trainer, series);
}

void StepBench::steps_in_a_row(train::Trainer& trainer, std::size_t ahead, std::size_t count,
                               StepSeries& series) {
  const train::NextBatch same{data_.batch, config().batch};
  for (std::size_t i = 0; i <= count; ++i) {
    trainer.launch(data_.batch, config().batch, rate, [&] { return std::optional(same); });
    trainer.let_run(ahead);
  }
  StepSeries mine;
  for (std::size_t i = 0; i <= count; ++i) {
    const train::StepReport report = trainer.report();
    train::Trainer::require_scaling(report);
    if (i == 0) continue;
    mine.step.push_back(report.idle_ms.value() + report.times.total_ms());
    mine.parts.push_back(report.times);
    add_loss(report, mine);
  }
  add(mine, series);
}

}  // namespace lockstep::app
