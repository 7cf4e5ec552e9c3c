#include "model/formats/onnx/onnx_layout.hpp"

#include <bit>
#include <string_view>

namespace lockstep::model {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

template <class Number>
WireMessage tensor(const std::string& name, OnnxType type, std::span<const std::size_t> shape,
                   std::span<const Number> values) {
  WireMessage message;
  for (const std::size_t dimension : shape) message.number(onnx_tensor::dimension, dimension);
  message.number(onnx_tensor::type, static_cast<std::uint64_t>(type)).text(onnx_tensor::name, name);
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return message.text(onnx_tensor::raw, std::string_view(bytes, values.size_bytes()));
}

WireMessage value_info(const std::string& name, OnnxType type, std::span<const std::size_t> shape) {
  WireMessage dimensions;
  dimensions.message(onnx_shape::dimension, WireMessage().text(onnx_shape::named, "N"));
  for (const std::size_t dimension : shape)
    dimensions.message(onnx_shape::dimension, WireMessage().number(onnx_shape::known, dimension));
  const WireMessage tensor_type =
      WireMessage()
          .number(onnx_tensor_type::number, static_cast<std::uint64_t>(type))
          .message(onnx_tensor_type::shape, dimensions);
  return WireMessage()
      .text(onnx_value::name, name)
      .message(onnx_value::type, WireMessage().message(onnx_type::tensor, tensor_type));
}

}  // namespace

Attributes& Attributes::whole(const char* name, std::size_t value) {
  all_.push_back(WireMessage()
                     .text(onnx_attribute::name, name)
                     .number(onnx_attribute::whole, value)
                     .number(onnx_attribute::type, onnx_attribute::of_whole));
  return *this;
}

Attributes& Attributes::wholes(const char* name, std::span<const std::size_t> values) {
  WireMessage message = WireMessage().text(onnx_attribute::name, name);
  for (const std::size_t value : values) message.number(onnx_attribute::wholes, value);
  all_.push_back(message.number(onnx_attribute::type, onnx_attribute::of_wholes));
  return *this;
}

Attributes& Attributes::real(const char* name, float value) {
  all_.push_back(WireMessage()
                     .text(onnx_attribute::name, name)
                     .real32(onnx_attribute::real, value)
                     .number(onnx_attribute::type, onnx_attribute::of_real));
  return *this;
}

void GraphWriter::node(const char* op, const std::string& output,
                       const std::vector<std::string>& inputs, const Attributes& attributes) {
  WireMessage node;
  for (const std::string& input : inputs) node.text(onnx_node::input, input);
  node.text(onnx_node::output, output).text(onnx_node::name, output).text(onnx_node::op, op);
  for (const WireMessage& attribute : attributes.all_)
    node.message(onnx_node::attribute, attribute);
  graph_.message(onnx_graph::node, node);
}

void GraphWriter::constant(const std::string& name, std::span<const std::size_t> shape,
                           std::span<const float> values) {
  graph_.message(onnx_graph::constant, tensor(name, OnnxType::real32, shape, values));
}

void GraphWriter::constant(const std::string& name, std::span<const double> values) {
  const std::size_t shape[] = {values.size()};
  graph_.message(onnx_graph::constant, tensor(name, OnnxType::real64, shape, values));
}

void GraphWriter::constant(const std::string& name, std::span<const std::int64_t> values) {
  const std::size_t shape[] = {values.size()};
  graph_.message(onnx_graph::constant, tensor(name, OnnxType::int64, shape, values));
}

void GraphWriter::inner(const std::string& name, std::span<const std::size_t> shape) {
  graph_.message(onnx_graph::inner, value_info(name, OnnxType::real32, shape));
}

void GraphWriter::input(const std::string& name, OnnxType type,
                        std::span<const std::size_t> shape) {
  graph_.message(onnx_graph::input, value_info(name, type, shape));
}

void GraphWriter::output(const std::string& name, std::span<const std::size_t> shape) {
  graph_.message(onnx_graph::output, value_info(name, OnnxType::real32, shape));
}

}  // namespace lockstep::model
