#include "config/key.hpp"
#include "config/keys/sections.hpp"

namespace lockstep::config {

std::vector<ConfigKey> watch_keys() {
  return {
      key("liveness.timeout-s", &C::liveness, &C::Liveness::timeout_s,
          "a rank that is silent for this long counts as lost, and the job ends")
          .within(2, 1e6)
          .bookkeeping()
          .between_ranks(),
      key("walltime.margin-s", &C::walltime, &C::Walltime::margin_s,
          "in a Slurm job: stop with a checkpoint this long before its time limit, in addition to "
          "the measured time of a step and a checkpoint; a limit that is made longer later is not "
          "seen")
          .within(0, 1e6)
          .bookkeeping(),
      key("audit.every-steps", &C::audit, &C::Audit::every_steps,
          "compare all ranks' weights every N steps (0: never)")
          .bookkeeping()
          .between_ranks(),
      key("binding.require", &C::binding, &C::Binding::require,
          "a CPU binding that is not confirmed when read back is an error")
          .bookkeeping()
          .other_name("require-binding"),
      key("preflight.check", &C::preflight, &C::Preflight::check,
          "before the start, measure the nodes and the network between them, and name nodes that "
          "are slow or different")
          .bookkeeping()
          .other_name("preflight"),
      key("preflight.require", &C::preflight, &C::Preflight::require,
          "the same, and such a node is an error")
          .bookkeeping()
          .other_name("require-preflight"),
  };
}

}  // namespace lockstep::config
