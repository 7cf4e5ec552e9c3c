#pragma once

#include <utility>

#include "lockstep/backend/recompute.hpp"
#include "lockstep/backend/winograd.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/train/decide/gpu_steps.hpp"
#include "lockstep/train/decide/packed_sets.hpp"
#include "lockstep/train/run_data.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::train {

/// What a start decides where the configuration leaves it open; where it does not, what it says.
/// Made once, before anything is written. The same on all ranks, but for paths. config.toml keeps
/// what was asked for, so that another run can take it; decisions.toml and the checkpoints keep
/// these, so that a resume decides alike.
struct Decisions {
  config::BackendChoice backend = config::BackendChoice::automatic;
  DataSets data = {};
  DataChoices choices = {};
  bool alone = false;  ///< this start has no one to exchange with as it was asked to
  config::AllReduceChoice all_reduce = config::AllReduceChoice::flat;
  float bucket_mb = 0;
  std::size_t lanes = 0;  ///< of shards
  GpuSteps gpu_steps = {};
  backend::Winograd winograd = {};
  backend::Recompute recompute = {};  ///< also counts what else the process has in memory

  /// What the run follows: `asked` with the decisions in it.
  config::Config in(config::Config asked) const {
    asked.backend = backend;
    asked.data.train = data.train;
    asked.data.val = data.val;
    asked.data.element = choices.element;
    asked.data.task = choices.task;
    asked.data.clip = choices.clip;
    asked.comm.all_reduce = all_reduce;
    asked.comm.bucket_mb = bucket_mb;
    asked.lanes = lanes;
    asked.winograd = winograd;
    asked.recompute = recompute;
    if (alone) asked = with_exact_exchange(std::move(asked));
    return gpu_steps.in(std::move(asked));
  }
};

}  // namespace lockstep::train
