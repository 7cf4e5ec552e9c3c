#pragma once

#include <cstdint>

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

}  // namespace lockstep::model
