#pragma once

#include <functional>

#include "app/trained/members.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/train/evaluator.hpp"

namespace lockstep::app {

/// Adds what all members of all ranks did since the last call; the same on every rank. Collective.
std::vector<backend::MemberFigures> figures_of_all(backend::Classifier& model,
                                                   comm::Control& control);

/// Finds the number of `words.fits` and gives it to `words` and to the running model: the smallest
/// by which the model is right on no fewer rows than what follows its `else`, minus 0.2 % of all
/// rows. Says what it found, as the words to use. `evaluate`: evaluates with this for
/// EvaluatorSpec::seen. Collective.
void fit_first_threshold(
    ModelWords& words, RunningModel& running, comm::Control& control,
    const std::function<train::Evaluation(std::function<void(const data::Batch&)> seen)>& evaluate);

}  // namespace lockstep::app
