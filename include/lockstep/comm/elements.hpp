#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::comm {

/// What a collective moves: IEEE floats of 32 and 16 bits, the upper half of a 32-bit float, and
/// signed integers. Those of 8 bits only move: they have no sum and no maximum, because each rank's
/// mean something else (backend::Vector).
enum class ElementType { f32, f16, bf16, i32, i64, i8 };

constexpr std::size_t bytes_of(ElementType type) {
  switch (type) {
    case ElementType::f16:
    case ElementType::bf16:
      return 2;
    case ElementType::i64:
      return 8;
    case ElementType::i8:
      return 1;
    default:
      return 4;
  }
}

/// How the ranks' values become one. The maximum of a NaN and a number is NaN on the host; NCCL may
/// give the number.
enum class Reduction { sum, max };

/// Memory of the device (or the host) that a collective reads and writes in place.
struct Elements {
  void* data = nullptr;
  std::size_t count = 0;
  ElementType type = ElementType::f32;

  std::size_t bytes() const { return count * bytes_of(type); }
  /// `size` elements from `first` on.
  Elements part(std::size_t first, std::size_t size) const {
    return {static_cast<std::byte*>(data) + first * bytes_of(type), size, type};
  }
};

inline Elements elements(float* data, std::size_t count) { return {data, count, ElementType::f32}; }
inline Elements elements(std::int32_t* data, std::size_t count) {
  return {data, count, ElementType::i32};
}
inline Elements elements(std::int64_t* data, std::size_t count) {
  return {data, count, ElementType::i64};
}
/// Bytes that only move.
inline Elements raw_elements(std::span<std::byte> bytes) {
  if (bytes.size() % sizeof(float) == 0)
    return {bytes.data(), bytes.size() / sizeof(float), ElementType::i32};
  return {bytes.data(), bytes.size(), ElementType::i8};
}

}  // namespace lockstep::comm
