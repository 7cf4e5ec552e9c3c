#include "train/ending/launcher_patience.hpp"

#include <fmt/core.h>

#include "lockstep/base/files/files.hpp"

namespace lockstep::train {

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
