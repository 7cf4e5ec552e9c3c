#include "config/key.hpp"
#include "config/keys/sections.hpp"

namespace lockstep::config {

std::vector<ConfigKey> cost_keys() {
  return {
      key("cost.per-core-hour", &C::cost, &C::Cost::per_core_hour,
          "price of a physical core for an hour, in any currency: the run's ledger has its cost")
          .at_least(0)
          .bookkeeping(),
      key("cost.per-gpu-hour", &C::cost, &C::Cost::per_gpu_hour, "the same of a GPU")
          .at_least(0)
          .bookkeeping(),
  };
}

}  // namespace lockstep::config
