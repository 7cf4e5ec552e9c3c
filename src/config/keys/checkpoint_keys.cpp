#include "config/key.hpp"
#include "config/keys/sections.hpp"

namespace lockstep::config {

std::vector<ConfigKey> checkpoint_keys() {
  using Section = C::Checkpoint;
  return {
      key("checkpoint.every-steps", &C::checkpoint, &Section::every_steps,
          "write one every N steps (0: never)")
          .bookkeeping(),
      key("checkpoint.every-epochs", &C::checkpoint, &Section::every_epochs,
          "write one every N epochs, and after the last (0: only after the last)")
          .bookkeeping(),
      key("checkpoint.every-minutes", &C::checkpoint, &Section::every_minutes,
          "write one after the step at which the newest is this old (0: never)")
          .within(0, 1e6)
          .bookkeeping(),
      key("checkpoint.keep", &C::checkpoint, &Section::keep,
          "how many of the newest to keep (step-STEP.h5), besides the best (best.h5) and the "
          "earlier bests that those count as theirs (best-STEP.h5)")
          .at_least(1)
          .bookkeeping(),
      key("checkpoint.background", &C::checkpoint, &Section::background,
          "steps continue while one is written, and one that becomes due meanwhile comes later; "
          "false: they wait")
          .bookkeeping(),
  };
}

}  // namespace lockstep::config
