#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "ports/cuda/plan/engines/conv_engines.hpp"

namespace lockstep::cuda {

const char* to_string(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::data_gradient:
      return "data gradient";
    case Pass::weight_gradient:
      return "weight gradient";
  }
  throw Error("a pass without a name");
}

std::string describe(const ConvRequest& request) {
  const ConvShape& s = request.shape;
  return fmt::format(
      "{} of a {}x{} convolution{}, {} x {}x{}x{} -> {}x{}x{}, stride {}, padding {}, {}{}{}{}",
      to_string(request.pass), s.kernel_height, s.kernel_width,
      s.groups > 1 ? fmt::format(" in {} groups", s.groups) : "", s.batch, s.height, s.width,
      s.channels, s.out_height, s.out_width, s.outputs, s.stride, s.padding,
      to_string(request.precision), request.deterministic ? ", deterministic" : "",
      request.fusion.normalised || request.fusion.norm_gradient ? ", after a batch norm" : "",
      request.fusion.sums ? ", with sums" : "");
}

std::size_t padded_image_channels(std::size_t channels) { return (channels + 3) / 4 * 4; }

ConvShape conv_shape(const nn::Network& network, std::size_t index, std::size_t batch) {
  const nn::Node& node = network.nodes[index];
  const nn::Node& input = network.nodes[node.inputs.at(0)];
  ConvShape s;
  s.batch = batch;
  s.channels = input.op == nn::Op::input ? padded_image_channels(input.shape.channels)
                                         : input.shape.channels;
  s.height = input.shape.height;
  s.width = input.shape.width;
  s.outputs = node.shape.channels;
  s.out_height = node.shape.height;
  s.out_width = node.shape.width;
  s.kernel_height = s.kernel_width = node.kernel;
  s.stride = node.stride;
  s.padding = node.padding;
  s.groups = node.groups;
  return s;
}

}  // namespace lockstep::cuda
