#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/base/text/choices.hpp"
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

/// The cut points at which residual blocks end, past the frozen layers: the first stage then has
/// all of these, and some that learn. A stage between two of them has a block or more, or the head.
std::vector<std::size_t> block_ends(const Network& network);

/// What makes a pass of a node long: its operations or its bytes.
struct WorkSpec {
  /// That the device computes while it moves a byte; 0: bytes take no time, as good as on a CPU,
  /// where they stay in its caches.
  double operations_a_byte = 0;
  std::size_t rows = 1;  ///< of a micro-batch
  std::size_t value_bytes = 4;
};

/// How long a training step's nodes from `first` on, before `last`, take: in operations.
double training_work(const Network& network, std::size_t first, std::size_t last,
                     const WorkSpec& spec = {});

/// Cuts into `stages` parts at block ends so that the largest part has as little work as it can; of
/// several such cuts the one that comes first. Throws InputError naming the largest number of
/// stages where there are more.
std::vector<std::size_t> balanced_cuts(const Network& network, std::size_t stages,
                                       const WorkSpec& spec = {});

/// Which layers keep their weights in a training: none, or those from the first one up to this one.
/// backbone: all but the head, which is what follows the last residual block.
enum class Freeze { none, conv1, layer1, layer2, layer3, backbone };

/// The network with these layers frozen. Throws InputError when it has no such layer.
Network with_frozen(Network network, Freeze freeze);

/// A network in two parts, as split() makes them: gradients do not pass from the one to the other.
struct FrozenSplit {
  Network frozen, trained;
};

/// The parts before and after the end of the frozen nodes, both with the network's name. Throws
/// Error when the network cannot be cut there, or nothing is frozen.
FrozenSplit split_frozen(const Network& network);

/// The part whose weights a training changes: all, or what follows the frozen layers.
Network trained_part(const Network& network);

}  // namespace lockstep::nn

template <>
struct lockstep::Choices<lockstep::nn::Freeze> {
  using enum nn::Freeze;
  static constexpr Choice<nn::Freeze> all[] = {{none, "none"},     {conv1, "conv1"},
                                               {layer1, "layer1"}, {layer2, "layer2"},
                                               {layer3, "layer3"}, {backbone, "backbone"}};
};
