// Why the order matters. The cost of an all-reduce, which decides about buckets, is that of the
// communicator that was decided on; and the memory of the processes is counted last, with all that
// the other decisions have left in it.
#include "train/decide/decide.hpp"

#include <utility>

#include "lockstep/train/decide/memory_limit.hpp"
#include "lockstep/train/specs.hpp"
#include "train/decide/reduction.hpp"
#include "train/decide/winograd_choice.hpp"

namespace lockstep::train {

Decided decide(const StartSetting& setting) {
  const RunSpec& spec = setting.spec;
  const config::Config::Comm& asked = spec.config.comm;
  const TrainerSpec trainer =
      make_trainer_spec(spec.config, setting.data.input(), spec.grid.replicas.count);
  const ReductionSetting reduction{.flat = setting.communicator,
                                   .control = setting.control,
                                   .nodes = spec.nodes,
                                   .on_host = setting.backend.name() != "cuda",
                                   .resume = setting.resume};
  auto [all_reduce, two_level] = choose_all_reduce(asked, reduction);
  Decisions decisions{
      .backend = parse_choice<config::BackendChoice>(setting.backend.name(), "backend"),
      .data = setting.data.sets(),
      .all_reduce = all_reduce};
  decisions.bucket_mb = choose_bucket_mb(
      asked, reduction, two_level ? *two_level : setting.communicator, trainer.network);
  decisions.winograd = choose_winograd(setting, trainer.network, trainer.program);
  decisions.recompute = trainer.program.recompute;
  count_process(decisions.recompute, trainer.network, setting.backend,
                {.loader_bytes = setting.data.loader_bytes(),
                 .average = trainer.average.kept(),
                 .exchange_bytes = trainer.program.exchange_bytes,
                 .checkpoints = true},
                setting.control);
  return {std::move(decisions), std::move(two_level)};
}

}  // namespace lockstep::train
