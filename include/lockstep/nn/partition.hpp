#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/nn/network.hpp"

namespace lockstep::nn {

/// The nodes at which the network can be cut: no later node reads a value made before them, so that
/// their own value is all that passes from one side to the other. In network order, without the
/// input and the loss.
std::vector<std::size_t> cut_points(const Network& network);

}  // namespace lockstep::nn
