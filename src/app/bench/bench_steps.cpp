#include "app/bench/bench_steps.hpp"

#include <fmt/core.h>

#include "app/cli/count_option.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/train/decide/gpu_steps.hpp"

namespace lockstep::app {

namespace {

void add_switch(Arguments app, const char* name, config::Switch& value) {
  app.add_taken(
         name,
         [name, &value](const std::string& text) {
           value = parse_choice<config::Switch>(text, name);
         },
         "as for lockstep train")
      .value_is_optional()
      .called("[true|false|auto]")
      .shows(choice_name(value));
}

}  // namespace

void StepOptions::add_to(Arguments app) {
  app.add("--model", model, "as for lockstep train").shows_default();
  app.add("--precision", precision, "fp32, tf32, bf16 or fp16").shows_default();
  app.add("--backend", backend, "auto, cpu, cuda or clock")
      .one_of({"auto", "cpu", "cuda", "clock"})
      .shows_default();
  app.add("--clock.row-ms", clock_row_ms, "as for lockstep train").within(0, 1e6);
  app.add("--clock.step-ms", clock_step_ms, "as for lockstep train").within(0, 1e9);
  app.add("--clock.profile", clock_profile, "as for lockstep train").called("FILE");
  app.add("--clock.efficiency", clock_efficiency, "as for lockstep train")
      .within(0.001, 1)
      .shows_default();
  app.add_flag("--comm.share-gpu,--share-gpu", share_gpu,
               "ranks may use one GPU together (for tests)");
  add_switch(app, "--fuse-norms", fuse_norms);
  add_switch(app, "--graph", graph);
  add_switch(app, "--tune", tune);
  app.add("--tune-cache", tune_cache, "as for lockstep train").shows_default();
  app.add("--recompute", recompute, "as for lockstep train").shows_default();
  app.add_taken(
         "--memory-limit",
         [this](const std::string& text) { memory_limit = parse_bytes(text, "--memory-limit"); },
         "as for lockstep train")
      .called("SIZE");
  app.add("--winograd", winograd, "as for lockstep train").shows_default();
  add_count(app, "--batch", batch, a_batch, "rows of all ranks together");
  add_count(app, "--data.size,--image", image, an_image_or_usual,
            "side of the images; 0: 32 or 224, by the model");
  add_count(app, "--classes", classes, classes_or_usual,
            "number of classes; 0: 10 or 1000, by the model");
  add_count(app, "--threads", threads, threads_or_all, "compute threads of a rank; 0: its cores");
  add_count(app, "--steps", steps, {1, 1'000'000}, "steps to measure");
  add_count(app, "--warm-up", warm_up, {0, 1'000'000}, "steps before those");
  app.add("--comm.bucket-mb,--bucket-mb", bucket_mb,
          "megabytes of gradients reduced at once; 0: 1 on CPUs and 25 on GPUs")
      .within(0.0, 4096.0)
      .shows_default();
  app.add("--comm.all-reduce,--all-reduce", all_reduce, "as for lockstep train, on CPUs")
      .one_of({"auto", "flat", "two-level"})
      .shows_default();
  app.add("--json", json, "write the figures to this file");
}

void StepOptions::require_sound(int world) const {
  backend::require_fusable(fuse_norms == config::Switch::on, backend::parse_precision(precision));
  require(batch % static_cast<std::size_t>(world) == 0,
          fmt::format("--batch {}: the global batch must divide among {} ranks", batch, world));
}

std::optional<backend::Pace> StepOptions::pace() const {
  const bool line = clock_row_ms > 0 || clock_step_ms > 0, file = !clock_profile.empty();
  if (backend == "clock")
    require(line != file,
            "--backend clock: say how long a step takes, either by --clock.row-ms and "
            "--clock.step-ms or by --clock.profile");
  else
    require(!line && !file, "--clock.* would have no effect: they belong to --backend clock");
  if (backend != "clock") return std::nullopt;
  if (file) return backend::read_pace(clock_profile, clock_efficiency);
  return backend::LinePace{clock_row_ms, clock_step_ms};
}

nn::Network StepOptions::network() const {
  return nn::resnet(nn::usual_resnet(model, image, classes));
}

train::TrainerSpec StepOptions::trainer(const nn::Network& network, int world, bool on_gpu) const {
  train::TrainerSpec spec;
  spec.network = network;
  spec.program.batch = batch / static_cast<std::size_t>(world);
  spec.program.precision = backend::parse_precision(precision);
  const train::GpuSteps steps_as = train::choose_gpu_steps({.graph = graph,
                                                            .tune = tune,
                                                            .fuse_norms = fuse_norms,
                                                            .on_gpus = on_gpu,
                                                            .precision = spec.program.precision});
  spec.program.fuse_norms = steps_as.fuse_norms;
  spec.program.recompute = backend::parse_recompute(recompute, "--recompute");
  spec.program.recompute.memory_limit = memory_limit;
  spec.program.winograd = backend::parse_winograd(winograd, "--winograd");
  spec.program.mean = std::vector<float>(network.input.channels, 0.5f);
  spec.program.stddev = std::vector<float>(network.input.channels, 0.25f);
  spec.weight_decay = 1e-4f;
  spec.graph = steps_as.graph;
  if (steps_as.tune) spec.program.plan_cache = tune_cache;
  const float size_mb = bucket_mb > 0 ? bucket_mb : on_gpu ? 25.f : 1.f;
  spec.bucket_bytes = static_cast<std::size_t>(size_mb * 1e6f);
  return spec;
}

void share_choices(comm::Control& control, backend::Backend& backend, train::TrainerSpec& spec) {
  backend::ProgramSpec& program = spec.program;
  program.writes_plan_cache = control.rank() == 0;
  if (program.winograd.decided()) return;
  std::string mine;
  if (control.rank() == 0)
    mine = backend.offers_winograd(program.precision)
               ? to_string(backend.measure_winograd(spec.network, program))
               : "false";
  program.winograd =
      backend::parse_winograd(control.broadcast(mine, "choice of convolutions"), "rank 0's choice");
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

void one_step(comm::Control& control, train::Trainer& trainer, const Synthetic& data,
              std::size_t global_rows, StepSeries* series) {
  const double begin = now_ms();
  const train::NextBatch same{data.batch, global_rows};
  const observe::StepTimes times =
      trainer.step(data.batch, global_rows, 1e-3f, [&] { return std::optional(same); }).times;
  const auto slowest_ms = control.max({now_ms() - begin, times.forward_ms, times.backward_ms,
                                       times.exposed_comm_ms, times.update_ms},
                                      "step");
  if (!series) return;
  series->step.push_back(slowest_ms[0]);
  series->forward.push_back(slowest_ms[1]);
  series->backward.push_back(slowest_ms[2]);
  series->exposed.push_back(slowest_ms[3]);
  series->update.push_back(slowest_ms[4]);
}

void warm_up(comm::Control& control, const StepOptions& options, train::Trainer& trainer,
             const Synthetic& data) {
  for (std::size_t i = 0; i < options.warm_up; ++i) one_step(control, trainer, data, options.batch);
}

void steps_in_a_row(comm::Control& control, train::Trainer& trainer, const Synthetic& data,
                    std::size_t global_rows, std::size_t ahead, std::size_t steps,
                    StepSeries& series) {
  const train::NextBatch same{data.batch, global_rows};
  for (std::size_t i = 0; i <= steps; ++i) {
    trainer.launch(data.batch, global_rows, 1e-3f, [&] { return std::optional(same); });
    trainer.let_run(ahead);
  }
  std::vector<double> mine_ms;
  for (std::size_t i = 0; i <= steps; ++i) {
    const train::StepReport report = trainer.report();
    train::Trainer::require_scaling(report);
    if (i == 0) continue;
    const observe::StepTimes& times = report.times;
    mine_ms.insert(mine_ms.end(), {report.idle_ms.value() + times.total_ms(), times.forward_ms,
                                   times.backward_ms, times.exposed_comm_ms, times.update_ms});
  }
  const std::vector<double> slowest_ms = control.max(mine_ms, "steps");
  std::vector<double>* const columns[] = {&series.step, &series.forward, &series.backward,
                                          &series.exposed, &series.update};
  for (std::size_t i = 0; i < slowest_ms.size(); ++i) columns[i % 5]->push_back(slowest_ms[i]);
}

}  // namespace lockstep::app
