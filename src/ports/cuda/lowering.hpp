#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/nn/network.hpp"

namespace lockstep::cuda {

/// What the CUDA backend turns a network into: units. Each is one step of the tape forward and one
/// or two steps backward.
/// - image: the input, normalised and padded in channels, or folded (plan/fusion.hpp);
/// - conv: a convolution;
/// - norm: a batch norm, with the sum and the ReLU after it where nothing else reads them;
/// - max_pool; mean_pool: the mean of each cell; subsample: option A's shortcut;
/// - head: global average pooling, linear layer and loss;
/// - receive, send: what passes the boundaries of a stage. They are no steps of forward: the caller
///   and the unit before `send` write where they pass.
enum class UnitKind { image, conv, norm, max_pool, mean_pool, subsample, head, receive, send };

/// False for units that are no steps of forward.
constexpr bool runs_forward(UnitKind kind) {
  return kind != UnitKind::receive && kind != UnitKind::send;
}

struct Unit {
  UnitKind kind = UnitKind::image;
  std::string name;                  ///< of the main node: "layer1.0.bn2"
  std::size_t node = 0;              ///< the main one, which has the parameters
  std::size_t value = 0;             ///< node whose value this unit makes: its last node
  std::size_t input = 0;             ///< unit whose value it reads; its own index for the first
  std::optional<std::size_t> skip;   ///< norm: unit that makes the other summand
  bool relu = false;                 ///< norm
  std::vector<std::size_t> readers;  ///< units that read this one's value, in order
};

/// The units in an order in which they can run. Throws Error naming a node that does not fit these
/// patterns.
std::vector<Unit> lower(const nn::Network& network);

}  // namespace lockstep::cuda
