// Why the order matters. The cost of an all-reduce, which decides about buckets, is that of the
// communicator that was decided on; and the memory of the processes is counted last, with all that
// the other decisions have left in it.
#include "train/decide/decide.hpp"

#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/train/decide/micro_batches.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::train {

namespace {

/// Those that run in this rank's process: for each size of its micro-batches, and of validations.
std::vector<backend::ProgramSpec> programs_of_run(const StartSetting& setting,
                                                  const backend::ProgramSpec& full) {
  const comm::GridAxis& replicas = setting.spec.grid.replicas;
  std::set<std::size_t, std::greater<>> sizes{full.batch};
  for (const std::uint64_t batch : {std::uint64_t{0}, setting.data.steps_per_epoch() - 1})
    for (const MicroBatch& part : plan_micro_batches(setting.data.global_rows(batch),
                                                     replicas.count, replicas.index, full.batch))
      if (part.rows > 0) sizes.insert(part.rows);
  std::vector<backend::ProgramSpec> programs;
  for (const std::size_t rows : sizes) programs.emplace_back(full).batch = rows;
  if (!setting.data.validation()) return programs;
  backend::ProgramSpec& validation = programs.emplace_back(full);
  validation.training = false;
  if (setting.spec.config.eval.batch != 0) validation.batch = setting.spec.config.eval.batch;
  return programs;
}

}  // namespace

Decided decide(const StartSetting& setting) {
  const RunSpec& spec = setting.spec;
  const config::Config::Comm& asked = spec.config.comm;
  const bool alone = continues_alone(spec.config, spec.grid.replicas.count, spec.nodes);
  const config::Config config = alone ? with_exact_exchange(spec.config) : spec.config;
  const GpuSteps gpu_steps = decide_gpu_steps(setting);
  TrainerSpec trainer = make_trainer_spec(gpu_steps.in(config), setting.data.input(),
                                          spec.grid.replicas.count, spec.grid.replicas.index);
  require_norm_values(nn::trained_part(trainer.network),
                      {.full = setting.data.global_rows(0),
                       .last = setting.data.global_rows(setting.data.steps_per_epoch() - 1),
                       .replicas = spec.grid.replicas.count,
                       .most = trainer.program.batch},
                      spec.config);
  const ReductionSetting reduction{.flat = setting.communicator,
                                   .control = setting.control,
                                   .nodes = spec.nodes,
                                   .on_host = setting.backend.name() != "cuda",
                                   .resume = setting.resume};
  auto [all_reduce, two_level] = choose_all_reduce(asked, reduction);
  Decisions decisions{
      .backend = parse_choice<config::BackendChoice>(setting.backend.name(), "backend"),
      .data = setting.data.sets(),
      .alone = alone,
      .all_reduce = all_reduce,
      .gpu_steps = gpu_steps};
  decisions.bucket_mb =
      choose_bucket_mb(asked, reduction, two_level ? *two_level : setting.communicator,
                       nn::trained_part(trainer.network));
  decisions.winograd = choose_winograd(setting, trainer.network, trainer.program);
  decisions.recompute = trainer.program.recompute;
  trainer.program.winograd = decisions.winograd;
  count_process(decisions.recompute, trainer.network, programs_of_run(setting, trainer.program),
                setting.backend,
                {.loader_bytes = setting.data.loader_bytes(),
                 .average = trainer.average.kept(),
                 .second_moments = optim::has_second_moments(trainer.formula),
                 .update_bytes = trainer.program.update_bytes,
                 .exchange_bytes = trainer.program.exchange_bytes,
                 .checkpoints = !spec.synthetic},
                setting.control);
  return {std::move(decisions), std::move(two_level)};
}

}  // namespace lockstep::train
