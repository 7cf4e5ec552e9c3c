#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/wire.hpp"
#include "model/formats/stored_tensor.hpp"

// The numbers of onnx.proto (github.com/onnx/onnx) that writing and reading a network need. Each
// namespace is a message, and has the numbers of its fields.
namespace lockstep::model {

/// TensorProto.DataType
enum class OnnxType : std::uint64_t {
  real32 = 1,
  uint8 = 2,
  int8 = 3,
  uint16 = 4,
  int16 = 5,
  int32 = 6,
  int64 = 7,
  boolean = 9,
  float16 = 10,
  real64 = 11,
  uint32 = 12,
  uint64 = 13,
  bfloat16 = 16,
};

namespace onnx_model {
constexpr std::uint32_t ir_version = 1, producer = 2, graph = 7, operator_set = 8, metadata = 14;
}
namespace onnx_operator_set {
constexpr std::uint32_t domain = 1, version = 2;
}
namespace onnx_note {
constexpr std::uint32_t key = 1, value = 2;
}
namespace onnx_graph {
constexpr std::uint32_t node = 1, name = 2, constant = 5, input = 11, output = 12, inner = 13;
}
namespace onnx_value {
constexpr std::uint32_t name = 1, type = 2;
}
namespace onnx_type {
constexpr std::uint32_t tensor = 1;
}
namespace onnx_tensor_type {
constexpr std::uint32_t number = 1, shape = 2;
}
namespace onnx_shape {
constexpr std::uint32_t dimension = 1, known = 1, named = 2;  // the last two are a dimension's
}
namespace onnx_node {
constexpr std::uint32_t input = 1, output = 2, name = 3, op = 4, attribute = 5;
}
namespace onnx_attribute {
constexpr std::uint32_t name = 1, real = 2, whole = 3, wholes = 8, type = 20;
constexpr std::uint64_t of_real = 1, of_whole = 2, of_wholes = 7;  // AttributeType
}  // namespace onnx_attribute
namespace onnx_tensor {
constexpr std::uint32_t dimension = 1, type = 2, floats = 4, int32s = 5, int64s = 7, name = 8,
                        raw = 9, doubles = 10, external = 13, place = 14;
constexpr std::uint64_t in_other_file = 1;  // DataLocation
}  // namespace onnx_tensor

/// Describes the constant that a TensorProto is, and checks that its bytes are those of its shape.
/// They stay in `message`. Throws InputError naming the tensor, also where its numbers are in
/// another file.
StoredTensor read_onnx_tensor(std::string_view name, std::string_view message);

/// The attributes of a node.
class Attributes {
 public:
  Attributes& whole(const char* name, std::size_t value);
  Attributes& wholes(const char* name, std::span<const std::size_t> values);
  Attributes& real(const char* name, float value);

 private:
  friend class GraphWriter;
  std::vector<WireMessage> all_;
};

/// Collects a graph: a list of nodes in an order in which they can run, and the constants that they
/// read. Each value has its own name.
class GraphWriter {
 public:
  explicit GraphWriter(const std::string& name) { graph_.text(onnx_graph::name, name); }

  /// A node with one output, of the same name.
  void node(const char* op, const std::string& output, const std::vector<std::string>& inputs,
            const Attributes& attributes = {});
  void constant(const std::string& name, std::span<const std::size_t> shape,
                std::span<const float> values);
  void constant(const std::string& name, std::span<const double> values);
  void constant(const std::string& name, std::span<const std::int64_t> values);
  /// Of a node's output, dimensions after the first, which is free. Readers could infer them;
  /// viewers only show what is written.
  void inner(const std::string& name, std::span<const std::size_t> shape);
  /// Dimensions as above.
  void input(const std::string& name, OnnxType type, std::span<const std::size_t> shape);
  void output(const std::string& name, std::span<const std::size_t> shape);

  const WireMessage& graph() const { return graph_; }

 private:
  WireMessage graph_;
};

}  // namespace lockstep::model
