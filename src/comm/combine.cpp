#include "comm/combine.hpp"

#include <cstdint>

#include "lockstep/base/error.hpp"
#include "lockstep/base/half.hpp"

// Each loop is compiled for several instruction sets; a template could not be.
#define VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))

namespace lockstep::comm {
namespace {

VECTORIZED void add_floats(float* __restrict total, const float* __restrict part,
                           std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) total[i] += part[i];
}

VECTORIZED void add_f16(float* __restrict total, const std::uint16_t* __restrict part,
                        std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) total[i] += widen_f16(part[i]);
}

VECTORIZED void add_bf16(float* __restrict total, const std::uint16_t* __restrict part,
                         std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) total[i] += widen_bf16(part[i]);
}

// Unsigned, because their sums wrap around.
VECTORIZED void add_i32(std::uint32_t* __restrict total, const std::uint32_t* __restrict part,
                        std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) total[i] += part[i];
}

VECTORIZED void add_i64(std::uint64_t* __restrict total, const std::uint64_t* __restrict part,
                        std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) total[i] += part[i];
}

/// Whether `part` replaces `total`: it is larger or NaN.
constexpr bool wins(float part, float total) { return !(part <= total) && total == total; }

VECTORIZED void max_f32(float* __restrict total, const float* __restrict part, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) total[i] = wins(part[i], total[i]) ? part[i] : total[i];
}

VECTORIZED void max_f16(std::uint16_t* __restrict total, const std::uint16_t* __restrict part,
                        std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    total[i] = wins(widen_f16(part[i]), widen_f16(total[i])) ? part[i] : total[i];
}

VECTORIZED void max_bf16(std::uint16_t* __restrict total, const std::uint16_t* __restrict part,
                         std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    total[i] = wins(widen_bf16(part[i]), widen_bf16(total[i])) ? part[i] : total[i];
}

VECTORIZED void max_i32(std::int32_t* __restrict total, const std::int32_t* __restrict part,
                        std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) total[i] = part[i] > total[i] ? part[i] : total[i];
}

VECTORIZED void max_i64(std::int64_t* __restrict total, const std::int64_t* __restrict part,
                        std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) total[i] = part[i] > total[i] ? part[i] : total[i];
}

VECTORIZED void widen_all_f16(float* __restrict total, const std::uint16_t* __restrict mine,
                              std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) total[i] = widen_f16(mine[i]);
}

VECTORIZED void widen_all_bf16(float* __restrict total, const std::uint16_t* __restrict mine,
                               std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) total[i] = widen_bf16(mine[i]);
}

VECTORIZED void round_all_f16(std::uint16_t* __restrict mine, const float* __restrict total,
                              std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) mine[i] = round_to_f16(total[i]);
}

VECTORIZED void round_all_bf16(std::uint16_t* __restrict mine, const float* __restrict total,
                               std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) mine[i] = round_to_bf16(total[i]);
}

/// One of the loops above, with untyped pointers.
template <auto loop, class Total, class Part>
void call(Total* total, const Part* part, std::size_t count) {
  [&]<class T, class P>(void (*)(T*, const P*, std::size_t)) {
    loop(static_cast<T*>(total), static_cast<const P*>(part), count);
  }(loop);
}

template <auto loop>
constexpr Combine in_place{nullptr, call<loop, void, void>, nullptr};

template <auto widen, auto add, auto round>
constexpr Combine in_float{call<widen, float, void>, call<add, void, void>,
                           call<round, void, float>};

}  // namespace

Combine combine_of(ElementType type, Reduction reduction) {
  const bool sum = reduction == Reduction::sum;
  switch (type) {
    case ElementType::f32:
      return sum ? in_place<add_floats> : in_place<max_f32>;
    case ElementType::f16:
      return sum ? in_float<widen_all_f16, add_f16, round_all_f16> : in_place<max_f16>;
    case ElementType::bf16:
      return sum ? in_float<widen_all_bf16, add_bf16, round_all_bf16> : in_place<max_bf16>;
    case ElementType::i32:
      return sum ? in_place<add_i32> : in_place<max_i32>;
    case ElementType::i64:
      return sum ? in_place<add_i64> : in_place<max_i64>;
    case ElementType::i8:
      break;
  }
  throw Error("values of this type have no sum and no maximum");
}

}  // namespace lockstep::comm
