#pragma once

#include "lockstep/backend/backend.hpp"
#include "lockstep/nn/network.hpp"
#include "train/decide/decide.hpp"

namespace lockstep::train {

/// Decides winograd = auto: that of the checkpoint from which the run resumes in the same
/// precision; with `deterministic` everywhere; else what rank 0 has measured on this processor for
/// `program`, now or, if the file RunSpec::algorithm_cache has it, earlier. Where a CPU lacks it
/// nothing uses it; GPUs and other precisions leave it open, for it has no effect there. Throws
/// InputError where it would have none but was asked for, also for a list with a shape that the
/// network does not have. Collective; rank 0 logs the choice.
backend::Winograd choose_winograd(const StartSetting& setting, const nn::Network& network,
                                  const backend::ProgramSpec& program);

}  // namespace lockstep::train
