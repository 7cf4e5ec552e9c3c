#include "lockstep/nn/partition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/cost.hpp"

namespace lockstep::nn {

std::vector<std::size_t> cut_points(const Network& network) {
  const auto read_by = readers(network);
  std::vector<std::size_t> cuts;
  std::size_t last_reader = 0;  // of all values before node i
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    if (i > 0 && last_reader <= i && !read_by[i].empty()) cuts.push_back(i);
    for (const std::size_t reader : read_by[i]) last_reader = std::max(last_reader, reader);
  }
  return cuts;
}

std::vector<std::size_t> block_ends(const Network& network) {
  std::vector<std::size_t> ends = cut_points(network);
  std::erase_if(ends, [&](std::size_t i) {
    const Node& node = network.nodes[i];
    return i <= network.frozen_nodes || node.op != Op::relu ||
           network.nodes[node.inputs[0]].op != Op::add;
  });
  return ends;
}

double training_work(const Network& network, std::size_t first, std::size_t last,
                     const WorkSpec& spec) {
  const auto work = [&](const PassCost& pass) {
    return std::max(pass.operations, spec.operations_a_byte * pass.bytes());
  };
  double sum = 0;
  for (std::size_t i = first; i < last; ++i) {
    const NodeCost cost = cost_of(network, i, {.rows = spec.rows, .value_bytes = spec.value_bytes});
    sum += work(cost.forward);
    if (i < network.frozen_nodes) continue;
    for (const PassCost* pass : {&cost.statistics, &cost.weight_gradient, &cost.data_gradient})
      sum += work(*pass);
  }
  return sum;
}

std::vector<std::size_t> balanced_cuts(const Network& network, std::size_t stages,
                                       const WorkSpec& spec) {
  const std::vector<std::size_t> ends = block_ends(network);
  require(stages >= 1 && stages <= ends.size() + 1,
          fmt::format("stages = {}: {} can be cut into at most {} stages, at the ends of "
                      "its blocks{}",
                      stages, network.name, ends.size() + 1,
                      network.frozen_nodes > 0 ? " after the frozen layers" : ""));
  // Piece i is what lies between ends i - 1 and i.
  std::vector<double> sums{0};
  std::size_t first = 0;
  for (const std::size_t end : ends) {
    sums.push_back(sums.back() + training_work(network, first, end + 1, spec));
    first = end + 1;
  }
  sums.push_back(sums.back() + training_work(network, first, network.nodes.size(), spec));
  const std::size_t pieces = ends.size() + 1;
  // least[p]: the largest part when the pieces from p on are cut into the stages that are left.
  std::vector<double> least(pieces + 1);
  for (std::size_t p = 0; p <= pieces; ++p) least[p] = sums[pieces] - sums[p];
  std::vector<std::vector<std::size_t>> next(stages, std::vector<std::size_t>(pieces, pieces));
  for (std::size_t left = 2; left <= stages; ++left) {
    const std::vector<double> fewer = least;
    for (std::size_t p = 0; p + left <= pieces; ++p) {
      least[p] = std::numeric_limits<double>::infinity();
      for (std::size_t q = p + 1; q + left - 1 <= pieces; ++q) {
        const double largest = std::max(sums[q] - sums[p], fewer[q]);
        if (largest >= least[p]) continue;
        least[p] = largest;
        next[left - 1][p] = q;
      }
    }
  }
  std::vector<std::size_t> cuts;
  for (std::size_t left = stages, p = 0; left > 1; --left) {
    p = next[left - 1][p];
    cuts.push_back(ends[p - 1]);
  }
  return cuts;
}

std::vector<Network> split(const Network& network, const std::vector<std::size_t>& cuts) {
  const std::vector<std::size_t> possible = cut_points(network);
  const auto read_by = readers(network);
  std::vector<Network> stages;
  std::size_t first = 0;  // of the stage's nodes
  for (std::size_t s = 0; s <= cuts.size(); ++s) {
    const std::size_t last = s < cuts.size() ? cuts[s] : network.nodes.size() - 1;
    check(last >= first && last < network.nodes.size(), "cuts must come in rising order");
    check(s == cuts.size() || std::binary_search(possible.begin(), possible.end(), last),
          network.nodes[last].name + " is not a point at which the network can be cut");
    Network stage{fmt::format("{} stage {}", network.name, s), network.input, network.classes, {}};
    if (s > 0) {
      stage.input = network.nodes[first - 1].shape;
      Node receive;
      receive.name = "receive";
      receive.op = Op::receive;
      receive.shape = stage.input;
      stage.nodes.push_back(receive);
    }
    for (std::size_t i = first; i <= last; ++i) {
      stage.nodes.push_back(network.nodes[i]);
      for (std::size_t& input : stage.nodes.back().inputs)
        input = s == 0 ? input : input + 1 - first;  // node first - 1 is `receive` now
    }
    if (s < cuts.size()) {
      Node send;
      send.name = "send";
      send.op = Op::send;
      send.inputs = {stage.nodes.size() - 1};
      send.shape = network.nodes[last].shape;
      send.gradients = read_by[last].size();
      stage.nodes.push_back(send);
    }
    if (s == 0 && network.frozen_nodes <= last) stage.frozen_nodes = network.frozen_nodes;
    validate(stage);
    stages.push_back(std::move(stage));
    first = last + 1;
  }
  return stages;
}

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
