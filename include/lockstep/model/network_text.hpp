#pragma once

#include <string>
#include <string_view>

#include "lockstep/nn/network.hpp"

namespace lockstep::model {

/// The network as JSON: name, input, classes and nodes, with the fields that each op uses. Shapes
/// follow from them. data/CHECKPOINT.md specifies it. The same network gives the same text.
std::string network_text(const nn::Network& network);

/// Reads such a text, which may come from anyone. Throws InputError naming the node and the field
/// when it is not JSON of that form, has a field or an op that is not known, a value out of range,
/// or when the nodes are not a network (nn::validate).
nn::Network parse_network(std::string_view text);

}  // namespace lockstep::model
