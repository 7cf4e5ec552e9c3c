#include "config/key.hpp"
#include "config/keys/sections.hpp"

namespace lockstep::config {

std::vector<ConfigKey> eval_keys() {
  using Section = C::Eval;
  return {
      key("eval.batch", &C::eval, &Section::batch,
          "rows of a validation batch on each rank (0: as in a training micro-batch)")
          .within(0, most_batch_rows)
          .needs("data.val", validates, "nothing is validated")
          .bookkeeping(),
      key("eval.every-epochs", &C::eval, &Section::every_epochs,
          "validate every N epochs, and after the last")
          .at_least(1)
          .needs("data.val", validates, "nothing is validated"),
  };
}

}  // namespace lockstep::config
