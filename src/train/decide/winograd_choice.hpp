#pragma once

#include "lockstep/backend/backend.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/nn/network.hpp"
#include "train/files/resume.hpp"

namespace lockstep::train {

/// Decides winograd = auto and writes the decision into `config`: that of the checkpoint from which
/// the run resumes; with `deterministic` everywhere; else what rank 0 has measured on this
/// processor, now or, if the file `cache` has it, earlier. An empty `cache` keeps nothing. Where a
/// CPU lacks it nothing uses it; GPUs and other precisions leave it open, for it has no effect
/// there. Throws InputError where it would have none but was asked for. Collective; rank 0 logs the
/// choice.
void choose_winograd(config::Config& config, const std::optional<ResumePoint>& resume,
                     const std::string& cache, backend::Backend& backend,
                     const nn::Network& network, const backend::ProgramSpec& program,
                     comm::Control& control);

}  // namespace lockstep::train
