#pragma once

#include <cstddef>
#include <optional>

#include "lockstep/base/text/choices.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::nn {

/// Which layers keep their weights in a training: none, or those from the first one up to this one.
/// backbone: all but the head, which is what follows the last residual block.
enum class Freeze { none, conv1, layer1, layer2, layer3, backbone };

/// The last node of the frozen layers; nothing for Freeze::none. Throws InputError when the network
/// has no such layer.
std::optional<std::size_t> last_frozen(const Network& network, Freeze freeze);

/// A network in two parts, as split() makes them: gradients do not pass from the one to the other.
struct FrozenSplit {
  Network frozen, trained;
};

/// The parts on both sides of the node `last`, both with the network's name. Throws Error when the
/// network cannot be cut there.
FrozenSplit split_frozen(const Network& network, std::size_t last);

}  // namespace lockstep::nn

template <>
struct lockstep::Choices<lockstep::nn::Freeze> {
  using enum nn::Freeze;
  static constexpr Choice<nn::Freeze> all[] = {{none, "none"},     {conv1, "conv1"},
                                               {layer1, "layer1"}, {layer2, "layer2"},
                                               {layer3, "layer3"}, {backbone, "backbone"}};
};
