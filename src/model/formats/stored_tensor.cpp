#include "model/formats/stored_tensor.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/half.hpp"

namespace lockstep::model {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

template <class Number>
Number number_at(const char* bytes) {
  Number number{};
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

float from_f16(const char* bytes) { return widen_f16(number_at<std::uint16_t>(bytes)); }
float from_bf16(const char* bytes) { return widen_bf16(number_at<std::uint16_t>(bytes)); }
float from_f64(const char* bytes) { return static_cast<float>(number_at<double>(bytes)); }

constexpr std::array types = {
    NumberForm{"F32", "<f4", "FloatStorage", 4, number_at<float>},
    NumberForm{"F16", "<f2", "HalfStorage", 2, from_f16},
    NumberForm{"BF16", "", "BFloat16Storage", 2, from_bf16},
    NumberForm{"F64", "<f8", "DoubleStorage", 8, from_f64},
    NumberForm{"I64", "<i8", "LongStorage", 8, nullptr},
    NumberForm{"I32", "<i4", "IntStorage", 4, nullptr},
    NumberForm{"I16", "<i2", "ShortStorage", 2, nullptr},
    NumberForm{"I8", "|i1", "CharStorage", 1, nullptr},
    NumberForm{"U64", "<u8", "", 8, nullptr},
    NumberForm{"U32", "<u4", "", 4, nullptr},
    NumberForm{"U16", "<u2", "", 2, nullptr},
    NumberForm{"U8", "|u1", "ByteStorage", 1, nullptr},
    NumberForm{"BOOL", "|b1", "BoolStorage", 1, nullptr},
    NumberForm{"F8_E4M3", "", "", 1, nullptr},
    NumberForm{"F8_E5M2", "", "", 1, nullptr},
};

/// The element after the last one that the tensor reaches; it has some.
std::size_t end_of(const StoredTensor& tensor) {
  std::size_t last = tensor.first;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    std::size_t step = 0;
    require(!__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &step) &&
                !__builtin_add_overflow(last, step, &last),
            fmt::format("tensor '{}' reaches too far", printable(tensor.name)));
  }
  return last + 1;
}

/// Calls `take` with the bytes of each number, row by row.
template <class Take>
void walk(const StoredTensor& tensor, std::string_view bytes, Take&& take) {
  const std::size_t count = count_of(tensor.shape), size = tensor.type->bytes;
  if (count == 0) return;
  require(
      end_of(tensor) <= bytes.size() / size,
      fmt::format("tensor '{}' reaches beyond its {} bytes", printable(tensor.name), bytes.size()));
  std::vector<std::size_t> index(tensor.shape.size(), 0);
  std::size_t at = tensor.first;
  for (std::size_t i = 0; i < count; ++i) {
    take(bytes.data() + at * size);
    for (std::size_t d = index.size(); d-- > 0;) {
      at += tensor.strides[d];
      if (++index[d] < tensor.shape[d]) break;
      at -= index[d] * tensor.strides[d];
      index[d] = 0;
    }
  }
}

}  // namespace

const NumberForm* find_type(const char* NumberForm::*format, std::string_view name) {
  const auto found = std::find_if(types.begin(), types.end(), [&](const NumberForm& type) {
    return !name.empty() && type.*format == name;
  });
  return found == types.end() ? nullptr : &*found;
}

const NumberForm& f32() { return types[0]; }
const NumberForm& i64() { return types[4]; }

std::size_t memory_for(std::size_t file_bytes) { return 2 * file_bytes + (std::size_t{1} << 20); }

std::size_t count_of(const std::vector<std::size_t>& shape) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 16;
  std::size_t count = 1;
  for (const std::size_t extent : shape)
    require(!__builtin_mul_overflow(count, extent, &count) && count <= most,
            fmt::format("a shape of {} dimensions has too many numbers", shape.size()));
  return count;
}

std::vector<std::size_t> row_major(const std::vector<std::size_t>& shape) {
  std::vector<std::size_t> strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

std::vector<float> values_of(const StoredTensor& tensor) {
  require(tensor.type->real != nullptr, fmt::format("tensor '{}' holds {}, which are no floats",
                                                    printable(tensor.name), tensor.type->name));
  std::string buffer;
  const std::string_view bytes = tensor.bytes(buffer);
  std::vector<float> values;
  const auto take = [&](const char* number) { values.push_back(tensor.type->real(number)); };
  if (count_of(tensor.shape) > 0 && end_of(tensor) <= bytes.size() / tensor.type->bytes)
    values.reserve(count_of(tensor.shape));
  walk(tensor, bytes, take);
  return values;
}

std::int64_t count_in(const StoredTensor& tensor) {
  if (tensor.type != &i64() || count_of(tensor.shape) != 1) return 0;
  std::string buffer;
  std::int64_t count = 0;
  walk(tensor, tensor.bytes(buffer),
       [&](const char* number) { count = number_at<std::int64_t>(number); });
  return std::max<std::int64_t>(count, 0);
}

std::string printable(std::string_view name) {
  constexpr std::size_t longest = 80;
  std::string text(name.substr(0, longest));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

}  // namespace lockstep::model
