#include "model/formats/onnx/graph_writer.hpp"

#include <bit>
#include <string_view>

namespace lockstep::model {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

// AttributeProto.AttributeType
constexpr std::uint64_t real_attribute = 1, whole_attribute = 2, wholes_attribute = 7;

template <class Number>
WireMessage tensor(const std::string& name, OnnxType type, std::span<const std::size_t> shape,
                   std::span<const Number> values) {
  WireMessage message;
  for (const std::size_t dimension : shape) message.number(1, dimension);
  message.number(2, static_cast<std::uint64_t>(type)).text(8, name);
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return message.text(9, std::string_view(bytes, values.size_bytes()));
}

WireMessage value_info(const std::string& name, OnnxType type, std::span<const std::size_t> shape) {
  WireMessage dimensions;
  dimensions.message(1, WireMessage().text(2, "N"));
  for (const std::size_t dimension : shape)
    dimensions.message(1, WireMessage().number(1, dimension));
  const WireMessage tensor_type =
      WireMessage().number(1, static_cast<std::uint64_t>(type)).message(2, dimensions);
  return WireMessage().text(1, name).message(2, WireMessage().message(1, tensor_type));
}

}  // namespace

Attributes& Attributes::whole(const char* name, std::size_t value) {
  all_.push_back(WireMessage().text(1, name).number(3, value).number(20, whole_attribute));
  return *this;
}

Attributes& Attributes::wholes(const char* name, std::span<const std::size_t> values) {
  WireMessage message = WireMessage().text(1, name);
  for (const std::size_t value : values) message.number(8, value);
  all_.push_back(message.number(20, wholes_attribute));
  return *this;
}

Attributes& Attributes::real(const char* name, float value) {
  all_.push_back(WireMessage().text(1, name).real32(2, value).number(20, real_attribute));
  return *this;
}

void GraphWriter::node(const char* op, const std::string& output,
                       const std::vector<std::string>& inputs, const Attributes& attributes) {
  WireMessage node;
  for (const std::string& input : inputs) node.text(1, input);
  node.text(2, output).text(3, output).text(4, op);
  for (const WireMessage& attribute : attributes.all_) node.message(5, attribute);
  graph_.message(1, node);
}

void GraphWriter::constant(const std::string& name, std::span<const std::size_t> shape,
                           std::span<const float> values) {
  graph_.message(5, tensor(name, OnnxType::real32, shape, values));
}

void GraphWriter::constant(const std::string& name, std::span<const std::int64_t> values) {
  const std::size_t shape[] = {values.size()};
  graph_.message(5, tensor(name, OnnxType::int64, shape, values));
}

void GraphWriter::inner(const std::string& name, std::span<const std::size_t> shape) {
  graph_.message(13, value_info(name, OnnxType::real32, shape));
}

void GraphWriter::input(const std::string& name, OnnxType type,
                        std::span<const std::size_t> shape) {
  graph_.message(11, value_info(name, type, shape));
}

void GraphWriter::output(const std::string& name, std::span<const std::size_t> shape) {
  graph_.message(12, value_info(name, OnnxType::real32, shape));
}

}  // namespace lockstep::model
