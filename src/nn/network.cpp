#include "lockstep/nn/network.hpp"

#include <fmt/core.h>

#include <numeric>
#include <set>

#include "lockstep/base/error.hpp"

namespace lockstep::nn {

namespace {

Shape windowed(const Node& node, const Shape& in, std::size_t channels) {
  check(in.height + 2 * node.padding >= node.kernel && in.width + 2 * node.padding >= node.kernel,
        fmt::format("{}: a window of {} does not fit into {}x{}", node.name, node.kernel, in.height,
                    in.width));
  return {channels, (in.height + 2 * node.padding - node.kernel) / node.stride + 1,
          (in.width + 2 * node.padding - node.kernel) / node.stride + 1};
}

Shape expected_shape(const Network& network, const Node& node) {
  const auto in = [&](std::size_t i) -> const Shape& {
    return network.nodes[node.inputs[i]].shape;
  };
  switch (node.op) {
    case Op::input:
    case Op::receive:
      return network.input;
    case Op::conv:
      return windowed(node, in(0), node.shape.channels);
    case Op::max_pool:
      return windowed(node, in(0), in(0).channels);
    case Op::subsample_pad:
      return {node.shape.channels, (in(0).height + node.stride - 1) / node.stride,
              (in(0).width + node.stride - 1) / node.stride};
    case Op::global_avg_pool:
      return {in(0).channels, 1, 1};
    case Op::linear:
      return {network.classes, 1, 1};
    case Op::add:
      check(in(0) == in(1), node.name + ": the two inputs differ in shape");
      return in(0);
    case Op::batch_norm:
    case Op::relu:
    case Op::loss:
    case Op::send:
      return in(0);
  }
  throw Error("unknown op");
}

}  // namespace

std::size_t Tensor::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

bool learned(Role role) { return role != Role::running_mean && role != Role::running_var; }

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
          {node.shape.channels, in.channels, node.kernel, node.kernel});
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

void validate(const Network& network) {
  std::set<std::string> names;
  check(!network.nodes.empty(), network.name + ": a network has nodes");
  const Op first = network.nodes.front().op, last = network.nodes.back().op;
  check(first == Op::input || first == Op::receive,
        network.name + ": the first node must be the input");
  check(last == Op::loss || last == Op::send, network.name + ": the last node must be the loss");
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    const Node& node = network.nodes[i];
    check(names.insert(node.name).second, "two nodes are named " + node.name);
    const bool starts = node.op == Op::input || node.op == Op::receive;
    const std::size_t arity = starts ? 0 : node.op == Op::add ? 2 : 1;
    check(node.inputs.size() == arity, node.name + ": wrong number of inputs");
    for (std::size_t input : node.inputs)
      check(input < i, node.name + ": an input does not come before it");
    check(node.shape == expected_shape(network, node), node.name + ": the shape does not follow");
  }
}

std::vector<std::vector<std::size_t>> readers(const Network& network) {
  std::vector<std::vector<std::size_t>> readers(network.nodes.size());
  for (std::size_t i = 0; i < network.nodes.size(); ++i)
    for (const std::size_t input : network.nodes[i].inputs) readers[input].push_back(i);
  return readers;
}

}  // namespace lockstep::nn
