#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/wire.hpp"
#include "model/formats/onnx/onnx_layout.hpp"

namespace lockstep::test {

/// A constant of an ONNX file.
struct OnnxConstant {
  std::string name;
  std::vector<std::size_t> shape;
  std::string numbers;
  model::OnnxType type = model::OnnxType::real32;
  std::uint32_t field = model::onnx_tensor::raw;  ///< that has the numbers
};

inline WireMessage onnx_constant(const OnnxConstant& one) {
  WireMessage message;
  for (const std::size_t extent : one.shape) message.number(model::onnx_tensor::dimension, extent);
  return message.number(model::onnx_tensor::type, static_cast<std::uint64_t>(one.type))
      .text(model::onnx_tensor::name, one.name)
      .text(one.field, one.numbers);
}

inline WireMessage node_of(const std::string& op, const std::vector<std::string>& inputs,
                           const std::string& output,
                           const std::vector<WireMessage>& attributes = {}) {
  WireMessage message;
  for (const std::string& input : inputs) message.text(model::onnx_node::input, input);
  message.text(model::onnx_node::output, output).text(model::onnx_node::op, op);
  for (const WireMessage& one : attributes) message.message(model::onnx_node::attribute, one);
  return message;
}

/// The bytes of a graph.
inline std::string onnx_graph_of(const std::vector<WireMessage>& nodes,
                                 const std::vector<WireMessage>& constants) {
  WireMessage graph;
  for (const WireMessage& node : nodes) graph.message(model::onnx_graph::node, node);
  for (const WireMessage& one : constants) graph.message(model::onnx_graph::constant, one);
  return graph.bytes();
}

/// A file of this graph. `rest`: fields after it.
inline std::string onnx_file(std::string_view graph, std::string_view producer = "pytorch",
                             const WireMessage& rest = {}) {
  namespace proto = model::onnx_model;
  return WireMessage()
             .number(proto::ir_version, 8)
             .text(proto::producer, producer)
             .text(proto::graph, graph)
             .message(proto::operator_set,
                      WireMessage().number(model::onnx_operator_set::version, 13))
             .bytes() +
         rest.bytes();
}

/// A file with nothing but these constants, which no node reads.
inline std::string onnx_file_of(const std::vector<OnnxConstant>& constants) {
  std::vector<WireMessage> messages;
  for (const OnnxConstant& one : constants) messages.push_back(onnx_constant(one));
  return onnx_file(onnx_graph_of({}, messages));
}

}  // namespace lockstep::test
