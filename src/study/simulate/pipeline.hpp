#pragma once

// When the stages of a pipeline do what in a step: train's own schedule, played with times.

#include <cstddef>
#include <vector>

#include "lockstep/study/machine/machine.hpp"
#include "lockstep/train/pipeline/schedule.hpp"

namespace lockstep::study {

/// What one micro-batch takes in a stage. `weights_ms`: of the weight gradients that backward
/// leaves, in a stage that has train::late_in_stage(); 0 in others.
struct StagePace {
  double forward_ms = 0, backward_ms = 0, weights_ms = 0;
};

/// What a micro-batch's messages cost at the boundary between a stage and the next one.
struct BoundaryCost {
  ReduceCost values, gradients;
};

/// A piece of a stage's schedule; times from the step's start, in ms. What gives takes no time;
/// what takes ends when the message is there.
struct PlayedPiece {
  train::StagePiece piece;
  double begin_ms = 0, end_ms = 0;
};

struct PipelinePaces {
  train::PipelineOrder order = train::PipelineOrder::one_f_one_b;
  std::size_t micro_batches = 1;
  std::vector<StagePace> stages;
  std::vector<BoundaryCost> boundaries;  ///< one fewer
};

/// Plays a step as train::Pipeline runs it: a message moves once it is given and expected, one
/// after the other of a boundary and direction; it is expected when the one before has been taken;
/// and nothing is computed where a message has not left yet. By stage, in the order of its
/// schedule. Pure.
std::vector<std::vector<PlayedPiece>> play_pipeline(const PipelinePaces& spec);

}  // namespace lockstep::study
