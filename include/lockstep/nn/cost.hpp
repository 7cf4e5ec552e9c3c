#pragma once

#include <cstddef>

#include "lockstep/nn/network.hpp"

namespace lockstep::nn {

/// The least that one pass of one node does: operations, 2 for each multiply-add, and bytes if it
/// reads each input and writes each output once. Numbers for each channel (biases, a batch norm's
/// scale) are so few that they are left out.
struct PassCost {
  double operations = 0, read = 0, written = 0;
  double bytes() const { return read + written; }
  PassCost& operator+=(const PassCost& other);
};

/// A pass that a node does not have costs nothing: the image has no gradient, and a sum hands its
/// gradient on as it is.
struct NodeCost {
  PassCost statistics;  ///< batch norm in training: the sums over its input
  PassCost forward;
  /// Of the weights; batch norm: the sums that both of its gradients need.
  PassCost weight_gradient;
  PassCost data_gradient;
};

struct CostSpec {
  std::size_t rows = 1;            ///< images in the micro-batch
  std::size_t value_bytes = 4;     ///< of one stored value, weight or gradient
  std::size_t image_channels = 0;  ///< as stored; 0: as many as the input has
};

/// What the node costs on any backend, if it runs alone. A backend that runs several nodes at once
/// saves what they pass to each other. Throws Error when `node` is not one of the network's.
NodeCost cost_of(const Network& network, std::size_t node, const CostSpec& spec);

}  // namespace lockstep::nn
