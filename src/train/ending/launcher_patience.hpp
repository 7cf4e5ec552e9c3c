#pragma once

#include <string>

namespace lockstep::train {

/// What to say at the start where mpirun kills its ranks `patience_s` after Ctrl-C or SIGTERM, and
/// a step and the checkpoint after it may take longer. Empty where they do not. `state_bytes`: of
/// the checkpoint.
std::string warn_of_launcher(double patience_s, double step_s, double state_bytes);

}  // namespace lockstep::train
