#include "lockstep/nn/network.hpp"

#include <fmt/format.h>

#include <numeric>
#include <set>

#include "lockstep/base/error.hpp"

namespace lockstep::nn {

namespace {

Shape windowed(const Node& node, const Shape& in, std::size_t channels) {
  require(in.height + 2 * node.padding >= node.kernel && in.width + 2 * node.padding >= node.kernel,
          fmt::format("{}: a window of {} does not fit into {}x{}", node.name, node.kernel,
                      in.height, in.width));
  return {channels, (in.height + 2 * node.padding - node.kernel) / node.stride + 1,
          (in.width + 2 * node.padding - node.kernel) / node.stride + 1};
}

/// One pixel of each cell of stride x stride pixels, where the last cells may be smaller.
Shape strided(const Node& node, const Shape& in, std::size_t channels) {
  return {channels, (in.height + node.stride - 1) / node.stride,
          (in.width + node.stride - 1) / node.stride};
}

bool starts_network(Op op) { return op == Op::input || op == Op::receive; }
bool ends_network(Op op) { return op == Op::loss || op == Op::send; }

}  // namespace

std::size_t Tensor::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

bool learned(Role role) { return role != Role::running_mean && role != Role::running_var; }

bool wants_gradient(const Node& node) {
  return node.op != Op::input && !(node.op == Op::receive && node.gradients == 0);
}

bool in_head(Role role) { return role == Role::linear_weight || role == Role::linear_bias; }

std::vector<Tensor> tensors(const Network& network) {
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    const Node& node = network.nodes[i];
    const auto put = [&](const char* suffix, Role role, std::vector<std::size_t> shape) {
      all.push_back({node.name + "." + suffix, role, i, std::move(shape)});
    };
    if (node.op == Op::conv) {
      const Shape& in = network.nodes[node.inputs[0]].shape;
      put("weight", Role::conv_weight,
          {node.shape.channels, in.channels / node.groups, node.kernel, node.kernel});
    } else if (node.op == Op::batch_norm) {
      put("weight", Role::bn_scale, {node.shape.channels});
      put("bias", Role::bn_shift, {node.shape.channels});
      put("running_mean", Role::running_mean, {node.shape.channels});
      put("running_var", Role::running_var, {node.shape.channels});
    } else if (node.op == Op::linear) {
      put("weight", Role::linear_weight,
          {node.shape.channels, network.nodes[node.inputs[0]].shape.channels});
      if (node.bias) put("bias", Role::linear_bias, {node.shape.channels});
    }
  }
  return all;
}

std::size_t numbers(const Network& network) {
  std::size_t count = 0;
  for (const Tensor& tensor : tensors(network)) count += tensor.count();
  return count;
}

std::size_t largest(const std::vector<Tensor>& tensors) {
  std::size_t most = 0;
  for (const Tensor& tensor : tensors) most = std::max(most, tensor.count());
  return most;
}

std::size_t arity(Op op) { return starts_network(op) ? 0 : op == Op::add ? 2 : 1; }

Shape output_shape(const Network& network, const Node& node) {
  const auto in = [&](std::size_t i) -> const Shape& {
    return network.nodes[node.inputs[i]].shape;
  };
  require(node.stride >= 1 && node.kernel >= 1, node.name + ": a stride or window of 0 pixels");
  switch (node.op) {
    case Op::input:
    case Op::receive:
      return network.input;
    case Op::conv:
      require(node.groups >= 1 && in(0).channels % node.groups == 0 &&
                  node.shape.channels % node.groups == 0,
              fmt::format("{}: {} groups do not divide {} and {} channels", node.name, node.groups,
                          in(0).channels, node.shape.channels));
      return windowed(node, in(0), node.shape.channels);
    case Op::max_pool:
      return windowed(node, in(0), in(0).channels);
    case Op::avg_pool:
      require(node.kernel == node.stride && node.padding == 0,
              node.name + ": its cells are as large as its stride, without padding");
      return strided(node, in(0), in(0).channels);
    case Op::subsample_pad:
      require(node.shape.channels >= in(0).channels, node.name + ": it can only add channels");
      return strided(node, in(0), node.shape.channels);
    case Op::global_avg_pool:
      return {in(0).channels, 1, 1};
    case Op::linear:
      require(in(0).height == 1 && in(0).width == 1, node.name + ": its input is not one pixel");
      return {node.shape.channels, 1, 1};
    case Op::add:
      require(in(0) == in(1), node.name + ": the two inputs differ in shape");
      return in(0);
    case Op::loss:
      require(in(0) == Shape{network.classes, 1, 1},
              node.name + ": its input is not one value for each class");
      return in(0);
    case Op::batch_norm:
    case Op::relu:
    case Op::send:
      return in(0);
  }
  throw Error("unknown op");
}

void validate(const Network& network) {
  std::set<std::string> names;
  require(!network.nodes.empty() && starts_network(network.nodes.front().op),
          network.name + ": the first node must be the input");
  require(ends_network(network.nodes.back().op), network.name + ": the last node must be the loss");
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    const Node& node = network.nodes[i];
    require(names.insert(node.name).second, "two nodes are named " + node.name);
    require(starts_network(node.op) == (i == 0), node.name + ": only the first node is the input");
    require(ends_network(node.op) == (i + 1 == network.nodes.size()),
            node.name + ": only the last node is the loss");
    require(node.inputs.size() == arity(node.op), node.name + ": wrong number of inputs");
    for (std::size_t input : node.inputs)
      require(input < i, node.name + ": an input does not come before it");
    require(node.shape == output_shape(network, node), node.name + ": the shape does not follow");
  }
  const auto readers = nn::readers(network);
  for (std::size_t i = 0; i + 1 < readers.size(); ++i)
    require(!readers[i].empty(), network.nodes[i].name + ": no node reads it");
}

std::vector<std::vector<std::size_t>> readers(const Network& network) {
  std::vector<std::vector<std::size_t>> readers(network.nodes.size());
  for (std::size_t i = 0; i < network.nodes.size(); ++i)
    for (const std::size_t input : network.nodes[i].inputs) readers[input].push_back(i);
  return readers;
}

}  // namespace lockstep::nn
