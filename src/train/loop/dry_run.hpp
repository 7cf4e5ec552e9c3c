#pragma once

#include "train/loop/run_loop.hpp"

namespace lockstep::train {

/// Makes some steps and logs what the whole training would take: time, images/s, memory. Nothing is
/// written; the trainer's weights are of no use afterwards. Collective.
void try_steps(const RunParts& parts);

}  // namespace lockstep::train
