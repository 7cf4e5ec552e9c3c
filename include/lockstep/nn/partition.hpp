#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/nn/network.hpp"

namespace lockstep::nn {

/// The nodes at which the network can be cut: no later node reads a value made before them, so that
/// their own value is all that passes from one side to the other. In network order, without the
/// input and the loss.
std::vector<std::size_t> cut_points(const Network& network);

/// Cuts the network after these nodes, in rising order, into one more stages. Each is a network: a
/// later one begins with a node `receive`, an earlier one ends with a node `send`, and tensors keep
/// their names. Throws Error naming a node that is not a cut point.
std::vector<Network> split(const Network& network, const std::vector<std::size_t>& cuts);

}  // namespace lockstep::nn
