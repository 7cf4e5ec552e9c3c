// Where a TensorProto has its numbers:
//   raw_data     all types: their bytes, little-endian, row by row
//   float_data   float32 in this way; double_data: float64
//   int32_data   each float16 or bfloat16 as the varint of its bits; int64_data: each int64
#include "model/formats/onnx/onnx_layout.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/wire.hpp"
#include "model/description.hpp"

namespace lockstep::model {
namespace {

struct TypeName {
  OnnxType number;
  const char* name;  ///< NumberForm's
  /// The field that may have its numbers where raw_data does not; 0: none that is read.
  std::uint32_t field = 0;
};
constexpr std::array types = {
    TypeName{OnnxType::real32, "F32", onnx_tensor::floats},
    TypeName{OnnxType::float16, "F16", onnx_tensor::int32s},
    TypeName{OnnxType::bfloat16, "BF16", onnx_tensor::int32s},
    TypeName{OnnxType::real64, "F64", onnx_tensor::doubles},
    TypeName{OnnxType::int64, "I64", onnx_tensor::int64s},
    TypeName{OnnxType::int32, "I32"},
    TypeName{OnnxType::int16, "I16"},
    TypeName{OnnxType::int8, "I8"},
    TypeName{OnnxType::uint64, "U64"},
    TypeName{OnnxType::uint32, "U32"},
    TypeName{OnnxType::uint16, "U16"},
    TypeName{OnnxType::uint8, "U8"},
    TypeName{OnnxType::boolean, "BOOL"},
};

/// What a TensorProto has, before it is judged.
struct Parts {
  std::uint64_t type = 0;
  std::vector<std::size_t> shape;
  std::uint32_t field = 0;  ///< that has the numbers; 0: none
  std::string_view numbers;
  bool in_other_file = false;
  std::string_view file;  ///< the other one; "" where none is named
};

void add_dimension(std::uint64_t extent, std::vector<std::size_t>& shape) {
  require(shape.size() < most_dimensions,
          fmt::format("it has more than {} dimensions", most_dimensions));
  require(extent <= std::numeric_limits<std::int64_t>::max(),
          fmt::format("it has a dimension of {}", static_cast<std::int64_t>(extent)));
  shape.push_back(extent);
}

/// The name of the file in an `external_data` entry; "" in an entry that says something else.
std::string_view other_file(std::string_view entry) {
  std::string_view key, value;
  each_field(entry, [&](const WireField& field) {
    if (field.number == onnx_note::key) key = field.as_text();
    if (field.number == onnx_note::value) value = field.as_text();
  });
  return key == "location" ? value : std::string_view();
}

void take_part(const WireField& field, Parts& parts) {
  switch (field.number) {
    case onnx_tensor::dimension:
      if (field.type == WireType::number) return add_dimension(field.value, parts.shape);
      for (std::string_view left = field.as_text(); !left.empty();)
        add_dimension(take_varint(left), parts.shape);
      return;
    case onnx_tensor::type:
      require(parts.type == 0, "it has two types");
      parts.type = field.as_number();
      return;
    case onnx_tensor::floats:
    case onnx_tensor::int32s:
    case onnx_tensor::int64s:
    case onnx_tensor::raw:
    case onnx_tensor::doubles:
      require(parts.field == 0, "it has its numbers in pieces, which are not read");
      parts.field = field.number;
      parts.numbers = field.as_text();
      return;
    case onnx_tensor::external:
      if (const std::string_view file = other_file(field.as_text()); !file.empty())
        parts.file = file;
      return;
    case onnx_tensor::place:
      parts.in_other_file = field.as_number() == onnx_tensor::in_other_file;
      return;
    default:
      return;
  }
}

Parts parts_of(std::string_view message) {
  Parts parts;
  each_field(message, [&](const WireField& field) { take_part(field, parts); });
  require(!parts.in_other_file && parts.file.empty(),
          fmt::format("it has its numbers in another file, '{}': write all into one file (with "
                      "torch.onnx.export, external_data=False)",
                      printable(parts.file)));
  return parts;
}

/// Numbers without keys: the last byte of each is below 128.
std::size_t count_varints(std::string_view bytes) {
  return static_cast<std::size_t>(
      std::count_if(bytes.begin(), bytes.end(), [](char byte) { return (byte & 0x80) == 0; }));
}

/// The bytes of the numbers that are varints.
std::string_view unpack(std::string_view numbers, std::size_t size, std::string& buffer) {
  buffer.clear();
  buffer.reserve(count_varints(numbers) * size);
  while (!numbers.empty()) {
    const std::uint64_t number = take_varint(numbers);
    require(size == sizeof number || number >> (8 * size) == 0,
            fmt::format("it has a number of more than {} bytes", size));
    put_little_endian(buffer, number, size);
  }
  return buffer;
}

}  // namespace

StoredTensor read_onnx_tensor(std::string_view name, std::string_view message) {
  const auto of_tensor = [name = std::string(name)](const auto& work) {
    try {
      return work();
    } catch (const InputError& error) {
      throw InputError(fmt::format("tensor '{}': {}", printable(name), error.what()));
    }
  };
  return of_tensor([&] {
    const Parts parts = parts_of(message);
    const auto type = std::find_if(types.begin(), types.end(), [&](const TypeName& one) {
      return static_cast<std::uint64_t>(one.number) == parts.type;
    });
    require(type != types.end(), fmt::format("it is of an unknown type {}", parts.type));
    StoredTensor tensor;
    tensor.name = name;
    tensor.type = find_type(&NumberForm::name, type->name);
    tensor.shape = parts.shape;
    tensor.strides = row_major(tensor.shape);
    const std::size_t size = tensor.type->bytes, count = count_of(tensor.shape);
    const bool raw = parts.field == onnx_tensor::raw || parts.field == 0;
    require(
        raw || parts.field == type->field,
        fmt::format("it has its {} in field {}, where they are not read", type->name, parts.field));
    const bool packed = parts.field == onnx_tensor::int32s || parts.field == onnx_tensor::int64s;
    require(packed ? count_varints(parts.numbers) == count : parts.numbers.size() == count * size,
            fmt::format("it is of {} and shape {}, but has {} bytes of numbers", type->name,
                        shape_text(tensor.shape), parts.numbers.size()));
    if (packed)
      tensor.bytes = [numbers = parts.numbers, size, of_tensor](std::string& buffer) {
        return of_tensor([&] { return unpack(numbers, size, buffer); });
      };
    else
      tensor.bytes = [numbers = parts.numbers](std::string&) { return numbers; };
    return tensor;
  });
}

}  // namespace lockstep::model
