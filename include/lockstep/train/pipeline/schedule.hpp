#pragma once

// In which order each stage of a pipeline runs the micro-batches of a step. Pure data.
//
// Three stages, five micro-batches, one_f_one_b; time goes to the right, digits are forwards,
// letters the backwards of the same micro-batches:
//
//   stage 0   0 1 2     A 3 B 4 C   D   E
//   stage 1     0 1   A 2 B 3 C 4 D   E
//   stage 2       0 A 1 B 2 C 3 D 4 E
//
// zb_h1 takes a backward apart: stage s leaves the weight gradients of a micro-batch (a to e) until
// s more have run backward, so that they fill the time in which it would wait for gradients. Stage
// 0 has no one to give gradients to, and makes all at once.
//
//   stage 0   0 1 2     A a 3 B b 4 C c D d E e
//   stage 1     0 1   A 2 B a 3 C b 4 D c E d e
//   stage 2       0 A 1 B 2 C a 3 D b 4 E c d e

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/config/choices.hpp"

namespace lockstep::train {

using config::PipelineOrder;

/// One thing that a stage does with one micro-batch of a step. The values and their gradients pass
/// the boundaries to the neighbours: values to the next stage, gradients to the one before.
struct StagePiece {
  enum class Do {
    take_values,
    forward,
    give_values,
    take_gradients,
    backward,
    give_gradients,
    weight_gradients  ///< those that backward has left
  };
  Do what = Do::forward;
  std::size_t micro = 0;  ///< the micro-batch
  std::size_t slot = 0;   ///< of the program: see ProgramSpec::slots
};

struct PipelineShape {
  std::size_t stages = 1, micro_batches = 1;
};

/// How many micro-batches are in flight in this stage at once, at most.
std::size_t slots_of_stage(PipelineOrder order, std::size_t stage, const PipelineShape& shape);

/// How many micro-batches at once, at most, have run backward in this stage and still need their
/// weight gradients. 0: its backward makes them.
std::size_t late_in_stage(PipelineOrder order, std::size_t stage, const PipelineShape& shape);

/// What this stage does in a step, in order. Every kind runs the backwards of a stage from the
/// first micro-batch to the last, so that gradients are added as in one stage; and one stage alone
/// runs forward and backward of each micro-batch in turn.
std::vector<StagePiece> schedule_of_stage(PipelineOrder order, std::size_t stage,
                                          const PipelineShape& shape);

/// Plays the schedules of all stages together, in that order of theirs. A message has no memory but
/// that of its giver's slot, where nothing is computed until it is taken, and those of one boundary
/// and direction are taken in the order in which they are given. Returns why they are no pipeline:
/// a stage that waits for ever, a message without its other side or of another micro-batch, a slot
/// that is filled twice, gradients out of order, more of them left than late_in_stage(), what is
/// missing or done twice. Empty: nothing is wrong.
std::string fault_in(PipelineOrder order, const std::vector<std::vector<StagePiece>>& stages,
                     std::size_t micro_batches);

}  // namespace lockstep::train
