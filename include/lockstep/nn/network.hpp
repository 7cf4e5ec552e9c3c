#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/base/text/choices.hpp"

namespace lockstep::nn {

enum class Op {
  input,
  conv,
  batch_norm,
  relu,
  add,
  max_pool,
  avg_pool,  ///< the mean of each cell of stride x stride pixels, or of those that it has
  subsample_pad,
  global_avg_pool,
  linear,
  loss,
  receive,  ///< the start of a later stage: a value that an earlier stage made
  send      ///< the end of an earlier stage
};

/// Rows are implied: every value of the network is [rows, height, width, channels].
struct Shape {
  std::size_t channels = 0, height = 0, width = 0;
  bool operator==(const Shape&) const = default;
  std::size_t count() const { return channels * height * width; }
};

/// One node of the network, as plain data. Fields that an op does not use stay at their defaults.
struct Node {
  std::string name;  ///< torchvision's module name ("layer1.0.conv1"); unique
  Op op = Op::input;
  std::vector<std::size_t> inputs;  ///< indices of earlier nodes
  Shape shape;                      ///< of the output
  std::size_t kernel = 1, stride = 1, padding = 0;
  /// conv: inputs and outputs are cut into that many groups of neighbours, and each group of
  /// outputs is made of the group of inputs in its place.
  std::size_t groups = 1;
  bool bias = false;      ///< linear only: convolutions here are followed by batch norm
  float epsilon = 1e-5f;  ///< batch norm: added to the variance
  float momentum = 0.1f;  ///< batch norm: share of the newest statistics in the running ones
  /// Batch norm: scale starts at 0 (the last of a residual branch, on request).
  bool zero_init = false;
  /// send: gradients that come back, one from each reader of the value in the next stage. receive:
  /// 0: none is wanted, because the layers before it are frozen.
  std::size_t gradients = 1;
};

/// A network is a list of nodes in an order in which they can run: the first is the input, the last
/// the loss. A stage of a network begins with `receive`, or ends with `send`, instead; `input` is
/// then the shape of what it receives. It holds no code: a backend compiles it. Everything that
/// ranks must agree on follows from it alone.
struct Network {
  std::string name;
  Shape input;
  std::size_t classes = 0;
  std::vector<Node> nodes;
  /// That many nodes at the start keep their weights in a training. A backend cuts after them.
  std::size_t frozen_nodes = 0;
};

enum class Role {
  conv_weight,
  linear_weight,
  linear_bias,
  bn_scale,
  bn_shift,
  running_mean,
  running_var
};

/// One named tensor of the network's state, in the plain layout: [out, in / groups, kernel, kernel]
/// for a convolution, [out, in] for a linear layer, [channels] for the rest; float.
struct Tensor {
  std::string name;  ///< torchvision's: "layer1.0.conv1.weight", "bn1.running_mean"
  Role role = Role::conv_weight;
  std::size_t node = 0;  ///< index into Network::nodes
  std::vector<std::size_t> shape;
  std::size_t count() const;
};

/// All tensors of the network in the order in which the forward pass uses them (batch norm: scale,
/// shift, running mean, running variance).
std::vector<Tensor> tensors(const Network& network);

/// How many numbers they hold together.
std::size_t numbers(const Network& network);
/// Numbers of the largest of them.
std::size_t largest(const std::vector<Tensor>& tensors);

/// True for the tensors that are learned by gradients; false for running statistics.
bool learned(Role role);

/// Whether backward makes a gradient of the node's value: not of the image, nor of what frozen
/// layers made.
bool wants_gradient(const Node& node);

/// True for the tensors of the last layer, the linear one.
bool in_head(Role role);

/// How many inputs such a node has.
std::size_t arity(Op op);

/// The shape that follows from the node's fields and inputs, which are earlier nodes of `network`.
/// Of node.shape it reads only the channels, where the op chooses them (conv, subsample_pad,
/// linear). Throws InputError naming the node when there is no such shape.
Shape output_shape(const Network& network, const Node& node);

/// Throws InputError naming the node when names repeat, an input is not earlier, a shape does not
/// follow from its inputs, or the nodes do not lead from one input to one loss over the classes.
void validate(const Network& network);

/// For each node, the nodes that read it, in network order.
std::vector<std::vector<std::size_t>> readers(const Network& network);

}  // namespace lockstep::nn

template <>
struct lockstep::Choices<lockstep::nn::Op> {
  using enum nn::Op;
  static constexpr Choice<nn::Op> all[] = {{input, "input"},
                                           {conv, "conv"},
                                           {batch_norm, "batch_norm"},
                                           {relu, "relu"},
                                           {add, "add"},
                                           {max_pool, "max_pool"},
                                           {avg_pool, "avg_pool"},
                                           {subsample_pad, "subsample_pad"},
                                           {global_avg_pool, "global_avg_pool"},
                                           {linear, "linear"},
                                           {loss, "loss"}};
};
