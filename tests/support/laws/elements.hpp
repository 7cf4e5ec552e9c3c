#pragma once

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>

#include "lockstep/base/error.hpp"
#include "tests/support/laws/compiler_half.hpp"
#include "tests/support/laws/verbs.hpp"

namespace lockstep::test::laws {

using comm::Communicator;
using comm::Elements;
using comm::ElementType;
using comm::Reduction;

inline constexpr ElementType every_type[] = {ElementType::f32, ElementType::f16, ElementType::bf16,
                                             ElementType::i32, ElementType::i64, ElementType::i8};
inline const char* name_of(ElementType type) {
  constexpr const char* names[] = {"f32", "f16", "bf16", "i32", "i64", "i8"};
  return names[static_cast<std::size_t>(type)];
}

template <class Value>
void put(std::byte* to, Value value) {
  std::memcpy(to, &value, sizeof value);
}
template <class Value>
double get(const std::byte* from) {
  Value value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<double>(value);
}

inline void encode(std::byte* to, ElementType type, double value) {
  switch (type) {
    case ElementType::f32:
      return put(to, static_cast<float>(value));
    case ElementType::f16:
      return put(to, static_cast<Half>(value));
    case ElementType::bf16:  // only for values that it holds exactly
      return put(to, static_cast<std::uint16_t>(
                         std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
    case ElementType::i32:
      return put(to, static_cast<std::int32_t>(value));
    case ElementType::i64:
      return put(to, static_cast<std::int64_t>(value));
    case ElementType::i8:
      return put(to, static_cast<std::int8_t>(value));
  }
}

inline double decode(const std::byte* from, ElementType type) {
  switch (type) {
    case ElementType::f32:
      return get<float>(from);
    case ElementType::f16:
      return get<Half>(from);
    case ElementType::bf16: {
      std::uint16_t bits;
      std::memcpy(&bits, from, sizeof bits);
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
    case ElementType::i32:
      return get<std::int32_t>(from);
    case ElementType::i64:
      return get<std::int64_t>(from);
    case ElementType::i8:
      return get<std::int8_t>(from);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

/// Small integers, different on each rank and in each place: eight of them add up to less than 2^7,
/// which every type holds exactly.
inline double small(int rank, std::size_t i) {
  return static_cast<double>((i * 7 + static_cast<std::size_t>(rank) * 13) % 31) - 15;
}

using Formula = std::function<double(std::size_t)>;

/// Elements in the communicator's memory, and one more that no collective may touch.
class Array {
 public:
  Array(Memory& memory, ElementType type, std::size_t count, const Formula& value)
      : memory_(memory), type_(type), count_(count) {
    std::vector<std::byte> bytes((count + 1) * comm::bytes_of(type));
    for (std::size_t i = 0; i <= count; ++i)
      encode(bytes.data() + i * comm::bytes_of(type), type, i < count ? value(i) : guard);
    data_ = memory.copy_in(bytes);
  }
  Elements all() const { return {data_.get(), count_, type_}; }
  /// What is wrong with the elements from `first` on; nothing if they have these values.
  std::string fault(std::string_view what, const Formula& wanted, std::size_t first = 0,
                    std::size_t size = std::numeric_limits<std::size_t>::max()) const {
    const auto bytes = memory_.copy_out(data_.get(), (count_ + 1) * comm::bytes_of(type_));
    const auto value = [&](std::size_t i) {
      return decode(bytes.data() + i * comm::bytes_of(type_), type_);
    };
    for (std::size_t i = first;
         i < std::min(count_, size == ~std::size_t{0} ? count_ : first + size); ++i)
      if (!(value(i) == wanted(i)))
        return fmt::format("{} of {} {}: element {} is {} instead of {}", what, count_,
                           name_of(type_), i, value(i), wanted(i));
    if (value(count_) != guard)
      return fmt::format("{} of {} {}: wrote after the end", what, count_, name_of(type_));
    return {};
  }

 private:
  static constexpr double guard = 77;
  Memory& memory_;
  ElementType type_;
  std::size_t count_;
  std::shared_ptr<void> data_;
};

/// What `call` throws as Kind; empty when it throws nothing.
template <class Kind>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  return {};
}

}  // namespace lockstep::test::laws
