#include "train/ending/stop_policy.hpp"

namespace lockstep::train {

bool StopPolicy::time_is_up(double now_s) const {
  if (!spec_.allocation_end_s) return false;
  // Two steps: this one and the next. Three checkpoints: when time is up, one may be on its way to
  // the disk, and a best one may wait for its turn.
  const double needed_s = spec_.margin_s + 2 * longest_step_s_ + 3 * longest_save_s_;
  return now_s + needed_s > *spec_.allocation_end_s;
}

}  // namespace lockstep::train
