#pragma once

#include <string>

#include "lockstep/backend/precision.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::train {

/// How a GPU runs the steps of a training, by the keys of these names.
struct GpuSteps {
  bool graph = false, tune = false, fuse_norms = false;
  bool operator==(const GpuSteps&) const = default;

  /// `asked` with these in its keys.
  config::Config in(config::Config asked) const;
};

/// What decides about them.
struct GpuStepsSetting {
  config::Switch graph = config::Switch::automatic, tune = config::Switch::automatic,
                 fuse_norms = config::Switch::automatic;
  bool on_gpus = false;
  backend::Precision precision = backend::Precision::fp32;
  bool deterministic = false;
  bool steps_differ = false;  ///< config::why_steps_differ() has a reason
  bool trains_norms = true;   ///< batch norms are among the layers that learn
};

/// For steps of this network by a resolved configuration. Pure.
GpuStepsSetting gpu_steps_setting(const config::Config& config, const nn::Network& network,
                                  int replicas, bool on_gpus);

/// What was asked for. Where that is open: on GPUs all that is possible, elsewhere nothing. Pure.
GpuSteps choose_gpu_steps(const GpuStepsSetting& setting);

/// `asked` in a start that resumes a run with the configuration `before`. If that run was on GPUs
/// in the same precision, what its bits depend on is as it was, where this start leaves it open.
/// Pure.
GpuStepsSetting keep_bits(const GpuStepsSetting& asked, const config::Config& before);

/// "on this GPU: steps as a CUDA graph, batch norms fused; --graph and --fuse-norms change that",
/// about what `setting` left open and `chosen` has; empty where there is nothing to say. `plans`:
/// the file that keeps what is measured.
std::string describe_gpu_steps(const GpuStepsSetting& setting, const GpuSteps& chosen,
                               const std::string& plans);

}  // namespace lockstep::train
