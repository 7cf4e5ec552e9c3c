#include "app/bench/bench_steps.hpp"

#include <optional>

#include "app/cli/count_option.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/base/share.hpp"

namespace lockstep::app {

namespace {

constexpr float rate = 1e-3f;  // no batch may diverge

}  // namespace

void StepOptions::add_to(Arguments app) {
  run.add_to(app);
  add_count(app, "--steps", steps, {1, 1'000'000}, "steps to measure");
  add_count(app, "--warm-up", warm_up, {0, 1'000'000}, "steps before those");
  app.add("--json", json, "write the figures to this file");
}

config::Config StepOptions::config() const {
  return run.of_steps("a benchmark makes steps that are thrown away, and has no run");
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

StepBench::StepBench(const train::RunSpec& spec, backend::Backend& backend,
                     comm::Communicator& communicator, comm::Control& control)
    : control_(control),
      run_(spec, backend, communicator, control),
      data_(run_.trainer_spec().network,
            even_share(config().batch, static_cast<std::size_t>(control.world()),
                       static_cast<std::size_t>(control.rank())),
            static_cast<std::uint64_t>(control.rank()), backend.device()) {}

void StepBench::step(train::Trainer& trainer, StepSeries* series) {
  const double begin = now_ms();
  const train::NextBatch same{data_.batch, config().batch};
  const observe::StepTimes times =
      trainer.step(data_.batch, config().batch, rate, [&] { return std::optional(same); }).times;
  const auto slowest_ms = control_.max({now_ms() - begin, times.forward_ms, times.backward_ms,
                                        times.exposed_comm_ms, times.update_ms},
                                       "step");
  if (!series) return;
  series->step.push_back(slowest_ms[0]);
  series->forward.push_back(slowest_ms[1]);
  series->backward.push_back(slowest_ms[2]);
  series->exposed.push_back(slowest_ms[3]);
  series->update.push_back(slowest_ms[4]);
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
  std::vector<double> mine_ms;
  for (std::size_t i = 0; i <= count; ++i) {
    const train::StepReport report = trainer.report();
    train::Trainer::require_scaling(report);
    if (i == 0) continue;
    const observe::StepTimes& times = report.times;
    mine_ms.insert(mine_ms.end(), {report.idle_ms.value() + times.total_ms(), times.forward_ms,
                                   times.backward_ms, times.exposed_comm_ms, times.update_ms});
  }
  const std::vector<double> slowest_ms = control_.max(mine_ms, "steps");
  std::vector<double>* const columns[] = {&series.step, &series.forward, &series.backward,
                                          &series.exposed, &series.update};
  for (std::size_t i = 0; i < slowest_ms.size(); ++i) columns[i % 5]->push_back(slowest_ms[i]);
}

}  // namespace lockstep::app
