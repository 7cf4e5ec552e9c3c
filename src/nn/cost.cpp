#include "lockstep/nn/cost.hpp"

#include "lockstep/base/error.hpp"

namespace lockstep::nn {

namespace {

class Costs {
 public:
  Costs(const Network& network, std::size_t index, const CostSpec& spec)
      : network_(network), node_(network.nodes[index]), spec_(spec) {
    out_ = values(node_);
    if (node_.inputs.empty()) return;
    in_ = values(input());
    from_image_ = input().op == Op::input;
  }

  NodeCost cost() const {
    NodeCost cost;
    switch (node_.op) {
      case Op::input:  // from bytes, one for each channel that the image really has
        cost.forward = {2 * out_, static_cast<double>(spec_.rows * node_.shape.count()),
                        bytes(out_)};
        break;
      case Op::conv:
      case Op::linear:
        return products();
      case Op::batch_norm:
        return batch_norm();
      case Op::relu:
        cost.forward = {out_, bytes(in_), bytes(out_)};
        cost.data_gradient = {out_, bytes(out_) + bytes(out_), bytes(in_)};
        break;
      case Op::add:
        cost.forward = {out_, static_cast<double>(node_.inputs.size()) * bytes(out_), bytes(out_)};
        break;
      case Op::max_pool:  // a byte for each output says which input was the largest
        cost.forward = {static_cast<double>(node_.kernel * node_.kernel) * out_, bytes(in_),
                        bytes(out_) + out_};
        cost.data_gradient = {4 * out_, bytes(out_) + out_, bytes(in_)};
        break;
      case Op::avg_pool:
        cost.forward = {in_, bytes(in_), bytes(out_)};
        cost.data_gradient = {in_, bytes(out_), bytes(in_)};
        break;
      case Op::subsample_pad: {  // moves every stride-th pixel
        const double moved = bytes(out_) / static_cast<double>(channels(node_)) *
                             static_cast<double>(channels(input()));
        cost.forward = {0, moved, bytes(out_)};
        cost.data_gradient = {0, moved, bytes(in_)};
        break;
      }
      case Op::global_avg_pool:
        cost.forward = {in_, bytes(in_), bytes(out_)};
        cost.data_gradient = {in_, bytes(out_), bytes(in_)};
        break;
      case Op::receive:
        cost.forward = {0, 0, bytes(out_)};
        cost.data_gradient = {0, bytes(out_), 0};
        break;
      case Op::send:
        cost.forward = {0, bytes(in_), 0};
        cost.data_gradient = {0, 0, bytes(in_)};
        break;
      case Op::loss:  // an exponential, a sum, a difference and a product for each logit
        cost.forward = {4 * in_, bytes(in_), bytes(in_)};
        break;
    }
    return cost;
  }

 private:
  const Node& input() const { return network_.nodes[node_.inputs[0]]; }
  double bytes(double values) const { return values * static_cast<double>(spec_.value_bytes); }
  std::size_t channels(const Node& node) const {
    return node.op == Op::input && spec_.image_channels > 0 ? spec_.image_channels
                                                            : node.shape.channels;
  }
  double values(const Node& node) const {
    return static_cast<double>(spec_.rows * channels(node) * node.shape.height * node.shape.width);
  }

  /// A convolution, or a linear layer, which is one over one pixel.
  NodeCost products() const {
    const double window =
        static_cast<double>(channels(input()) / node_.groups * node_.kernel * node_.kernel);
    const double weights = window * static_cast<double>(node_.shape.channels);
    const double operations = 2 * out_ * window;
    NodeCost cost;
    cost.forward = {operations, bytes(in_) + bytes(weights), bytes(out_)};
    cost.weight_gradient = {operations, bytes(in_) + bytes(out_), bytes(weights)};
    if (!from_image_) cost.data_gradient = {operations, bytes(out_) + bytes(weights), bytes(in_)};
    return cost;
  }

  /// Memory decides how long these take; the operations are those of the formulas in Ioffe and
  /// Szegedy 2015.
  NodeCost batch_norm() const {
    NodeCost cost;
    cost.statistics = {4 * in_, bytes(in_), 0};
    cost.forward = {3 * in_, bytes(in_), bytes(out_)};
    cost.weight_gradient = {10 * in_, bytes(in_) + bytes(out_), 0};
    cost.data_gradient = {4 * in_, bytes(in_) + bytes(out_), bytes(in_)};
    return cost;
  }

  const Network& network_;
  const Node& node_;
  const CostSpec& spec_;
  double in_ = 0, out_ = 0;  // values in the whole micro-batch
  bool from_image_ = false;
};

}  // namespace

PassCost& PassCost::operator+=(const PassCost& other) {
  operations += other.operations;
  read += other.read;
  written += other.written;
  return *this;
}

NodeCost cost_of(const Network& network, std::size_t node, const CostSpec& spec) {
  check(node < network.nodes.size(), "the network has no node " + std::to_string(node));
  return Costs(network, node, spec).cost();
}

}  // namespace lockstep::nn
