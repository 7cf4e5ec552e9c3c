#include "lockstep/serve/features.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

namespace lockstep::serve {

std::size_t add_features(model::Model& model) {
  nn::Network& network = model.about.network;
  const std::size_t last = network.nodes.back().inputs.at(0);
  nn::Node& layer = network.nodes.at(last);
  require(layer.op == nn::Op::linear,
          fmt::format("{}: has no features: it does not end with a linear layer", network.name));
  const std::size_t classes = layer.shape.channels;
  const std::size_t features = network.nodes.at(layer.inputs.at(0)).shape.count();
  for (model::Weight& weight : model.weights) {
    if (weight.tensor.node != last) continue;
    weight.tensor.shape.at(0) += features;
    const bool is_matrix = weight.tensor.role == nn::Role::linear_weight;
    weight.values.resize(weight.tensor.count());
    for (std::size_t k = 0; is_matrix && k < features; ++k)
      weight.values[(classes + k) * features + k] = 1;
  }
  layer.shape.channels += features;
  network.classes += features;
  network.nodes.back().shape = nn::output_shape(network, network.nodes.back());
  nn::validate(network);
  return features;
}

}  // namespace lockstep::serve
