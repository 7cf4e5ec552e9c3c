#include "train/ending/stop_policy.hpp"

#include <fmt/format.h>

#include "lockstep/base/files/files.hpp"

namespace lockstep::train {

bool StopPolicy::time_is_up(double now_s) const {
  if (!spec_.allocation_end_s) return false;
  // Two steps: this one and the next. Three checkpoints: when time is up, one may be on its way to
  // the disk, and a best one may wait for its turn.
  const double needed_s = spec_.margin_s + 2 * longest_step_s_ + 3 * longest_save_s_;
  return now_s + needed_s > *spec_.allocation_end_s;
}

std::string warn_of_launcher(double patience_s, double step_s, double state_bytes) {
  constexpr double written_bytes_per_s = 2e8;  // to a disk that is not fast
  const double needed_s = step_s + state_bytes / written_bytes_per_s;
  if (needed_s <= patience_s) return "";
  return fmt::format(
      "mpirun kills the ranks {:g} s after Ctrl-C or SIGTERM, but a step and its checkpoint take "
      "about {}: the steps since the newest checkpoint would be lost. Stop it by SIGUSR1 to mpirun",
      patience_s, human_seconds(needed_s));
}

}  // namespace lockstep::train
