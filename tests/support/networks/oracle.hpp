#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::test {

/// Computes a network in double precision, node by node and loop by loop: slow, obvious, and
/// written without a look at any backend, so that backends can be compared with it. Values are
/// [rows, height, width, channels].
class Oracle {
 public:
  explicit Oracle(const nn::Network& network) : network_(network) {}

  std::map<std::string, std::vector<double>> parameters;  ///< plain layout, by tensor name
  float label_smoothing = 0;

  /// Mean loss over the rows, in training mode. images: [rows, height, width, channels].
  double forward(const std::vector<double>& images, const std::vector<data::Target>& targets);
  /// d mean loss / d parameter for all learned tensors, after forward().
  std::map<std::string, std::vector<double>> backward();
  /// Batch mean and unbiased variance of a batch-norm node, after forward().
  const std::vector<double>& batch_mean(const std::string& node) const { return mean_.at(node); }
  const std::vector<double>& batch_variance(const std::string& node) const {
    return variance_.at(node);
  }
  const std::vector<double>& logits() const;
  /// The smallest magnitude at the input of any ReLU, and the smallest lead of the largest value in
  /// any pooling window. When rounding is far below it, every implementation takes the same
  /// branches.
  double margin() const { return margin_; }

 private:
  using Values = std::vector<double>;
  Values run(std::size_t node);
  Values conv(const nn::Node& node, const Values& in) const;
  Values batch_norm(const nn::Node& node, const Values& in);
  Values max_pool(const nn::Node& node, const Values& in);
  void differentiate(std::size_t node, const Values& dy);
  Values conv_backward(const nn::Node& node, const Values& in, const Values& dy);
  Values batch_norm_backward(const nn::Node& node, const Values& in, const Values& dy);
  Values linear_backward(const nn::Node& node, const Values& in, const Values& dy);
  const nn::Shape& input_shape(const nn::Node& node) const {
    return network_.nodes[node.inputs[0]].shape;
  }
  void add_gradient(std::size_t node, const Values& dx);

  nn::Network network_;
  std::size_t rows_ = 0;
  std::vector<Values> values_, gradients_;  // by node
  std::vector<data::Target> targets_;
  std::map<std::string, Values> mean_, variance_, parameter_gradients_;
  double margin_ = 0;
};

}  // namespace lockstep::test
