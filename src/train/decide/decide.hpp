#pragma once

#include <memory>
#include <optional>

#include "lockstep/backend/backend.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/train/decide/gpu_steps.hpp"
#include "lockstep/train/run.hpp"
#include "lockstep/train/run_data.hpp"
#include "train/decisions.hpp"
#include "train/files/resume.hpp"

namespace lockstep::train {

/// What a start decides by.
struct StartSetting {
  const RunSpec& spec;
  backend::Backend& backend;
  comm::Communicator& communicator;  ///< of the replicas
  comm::Control& control;
  const std::optional<ResumePoint>& resume;
  const RunData& data;
};

/// Decides how steps run on GPUs. A start that resumes a run on GPUs in the same precision keeps
/// what its bits depend on. Rank 0 logs what was not asked for. The same on all ranks.
GpuSteps decide_gpu_steps(const StartSetting& setting);

struct Decided {
  Decisions decisions;
  /// Carries out the decision for sums over two levels; else null. StartSetting::communicator must
  /// outlive it.
  std::unique_ptr<comm::Communicator> two_level;
};

/// Decides, measures where that is needed, and logs what was not asked for. Throws InputError where
/// what was asked for cannot be. Call it when all but the parameters and the loader is there,
/// because it counts the memory of the processes. Collective.
Decided decide(const StartSetting& setting);

}  // namespace lockstep::train
