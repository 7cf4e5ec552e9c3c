#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/control.hpp"
#include "lockstep/infer/members.hpp"
#include "lockstep/train/evaluator.hpp"

namespace lockstep::app {

/// Their files, in the order of the words. Throws InputError where one has no model, or two are the
/// same file.
std::vector<std::string> member_files(const infer::ModelWords& words);

/// One line of what a member did: "small.h5: 200 rows in 0.31 s, 645 images/s".
std::string figures_text(const infer::MemberFigures& figures);

/// Adds what all members of all ranks did since the last call; the same on every rank. Collective.
std::vector<infer::MemberFigures> figures_of_all(infer::Classifier& model, comm::Control& control);

/// Finds the number of `words.fits` and gives it to `words` and to the running model: the smallest
/// by which the model is right on no fewer rows than what follows its `else`, minus 0.2 % of all
/// rows. Says what it found, as the words to use. `evaluate`: evaluates with this for
/// EvaluatorSpec::seen. Collective.
void fit_first_threshold(
    infer::ModelWords& words, infer::RunningModel& running, comm::Control& control,
    const std::function<train::Evaluation(std::function<void(const data::Batch&)> seen)>& evaluate);

}  // namespace lockstep::app
