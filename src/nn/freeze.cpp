#include "lockstep/nn/freeze.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/partition.hpp"

namespace lockstep::nn {

namespace {

/// "layer1" of "layer1.0.conv1", the stem's nodes being "conv1", and "backbone" before the pooling.
bool in_layer(const Node& node, Freeze freeze) {
  const std::string name = choice_name(freeze);
  if (freeze == Freeze::conv1) return !node.name.starts_with("layer") && node.op != Op::input;
  return freeze == Freeze::backbone || node.name.starts_with(name + ".");
}

}  // namespace

Network with_frozen(Network network, Freeze freeze) {
  if (freeze == Freeze::none) return network;
  const auto head = std::find_if(network.nodes.begin(), network.nodes.end(), [](const Node& node) {
    return node.op == Op::global_avg_pool || node.op == Op::linear;
  });
  const auto first = std::find_if(network.nodes.begin(), head,
                                  [&](const Node& node) { return in_layer(node, freeze); });
  require(first != head,
          fmt::format("freeze = {}: {} has no such layer", choice_name(freeze), network.name));
  const auto end =
      freeze == Freeze::backbone
          ? head
          : std::find_if_not(first, head, [&](const Node& node) { return in_layer(node, freeze); });
  network.frozen_nodes = static_cast<std::size_t>(end - network.nodes.begin());
  return network;
}

FrozenSplit split_frozen(const Network& network) {
  check(network.frozen_nodes > 0, network.name + " has no frozen layers");
  std::vector<Network> parts = split(network, {network.frozen_nodes - 1});
  for (Network& part : parts) part.name = network.name;
  parts[0].nodes.back().gradients = 0;
  parts[1].nodes.front().gradients = 0;
  return {std::move(parts[0]), std::move(parts[1])};
}

Network trained_part(const Network& network) {
  return network.frozen_nodes > 0 ? split_frozen(network).trained : network;
}

}  // namespace lockstep::nn
