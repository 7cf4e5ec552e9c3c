#pragma once

// What a network's outputs say, by its task.

#include <span>
#include <vector>

#include "lockstep/data/data_set_info.hpp"

namespace lockstep::backend {

/// What files and clients call it.
constexpr const char* name_of_answers(data::Task task) {
  return task == data::Task::values ? "values" : "probabilities";
}

/// Of one row's outputs: the probability of each class, which add up to 1, or of each label on its
/// own, or each value in its units, by the means and deviations of `said`. Computed in double; NaN
/// where an output is not a number, and of classes where any is.
std::vector<float> answers_of(const data::DataSetInfo& said, std::span<const float> outputs);

}  // namespace lockstep::backend
