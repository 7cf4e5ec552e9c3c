#pragma once

#include "lockstep/nn/network.hpp"

namespace lockstep::test {

/// Multiplications and additions of one image's forward pass in convolutions and linear layers (2
/// per multiply-add).
inline double forward_flops(const nn::Network& network) {
  double flops = 0;
  for (const nn::Node& node : network.nodes) {
    if (node.op != nn::Op::conv && node.op != nn::Op::linear) continue;
    const double per_output =
        2.0 * static_cast<double>(network.nodes[node.inputs[0]].shape.channels / node.groups *
                                  node.kernel * node.kernel);
    flops += per_output * static_cast<double>(node.shape.count());
  }
  return flops;
}

}  // namespace lockstep::test
