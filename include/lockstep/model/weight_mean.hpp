#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/model/model.hpp"

namespace lockstep::model {

/// The mean of the weights of several models, each with the same share: Izmailov et al. 2018,
/// "Averaging weights leads to wider optima and better generalization". It is added up in double
/// precision, so that the mean of equal models has their bits. The mean of running statistics does
/// not fit the mean of weights: train/statistics.hpp makes new ones.
class WeightMean {
 public:
  /// `path` is for messages. Throws InputError naming both files and what differs, where this model
  /// has another network, input or classes than the first one, and naming the tensor, where a value
  /// is not finite.
  void add(Model model, const std::string& path);
  std::size_t models() const { return count_; }
  /// The first model with the mean in place of its weights. REQUIRES: models() > 0.
  Model take() &&;

 private:
  Model first_;
  std::string first_path_;
  std::vector<std::vector<double>> sums_;  // by tensor
  std::size_t count_ = 0;
};

}  // namespace lockstep::model
