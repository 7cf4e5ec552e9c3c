#include "tests/support/laws/vector_laws.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/half.hpp"
#include "lockstep/base/rng.hpp"
#include "tests/support/laws/compiler_half.hpp"

namespace lockstep::test {
namespace {

using backend::Vector;
using backend::Vectors;
using comm::ElementType;
using Floats = std::vector<float>;

constexpr ElementType every_format[] = {ElementType::f32, ElementType::f16, ElementType::bf16,
                                        ElementType::i8};
constexpr std::size_t lengths[] = {0, 1, 15, 255, 256, 257, 5000};
constexpr std::size_t block = backend::arithmetic::scale_block;
constexpr float infinity = std::numeric_limits<float>::infinity();
const float nan = std::numeric_limits<float>::quiet_NaN();

const char* name_of(ElementType type) {
  return type == ElementType::f32   ? "f32"
         : type == ElementType::f16 ? "f16"
         : type == ElementType::i8  ? "i8"
                                    : "bf16";
}

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

/// A vector on the device, and a guard after its end.
class Held {
 public:
  Held(Vectors& vectors, ElementType type, std::size_t count)
      : vectors_(vectors),
        type_(type),
        count_(count),
        memory_(vectors.allocate((count + guards) * comm::bytes_of(type), "a test")),
        scales_(vectors.allocate((backend::scales_of(count) + 1) * sizeof(float), "scales")) {}
  Held(Vectors& vectors, ElementType type, const Floats& values)
      : Held(vectors, type, values.size()) {
    const backend::DeviceMemory room =
        vectors.allocate(values.size() * sizeof(float) + 4, "values");
    vectors.write(std::as_bytes(std::span(values)), room.get());
    vectors.cast(backend::vector(reinterpret_cast<float*>(room.get()), values.size()), all());
    Floats ignored(1);
    vectors.read(room.get(), std::as_writable_bytes(std::span(ignored)));  // room is no longer read
  }
  Vector all() const {
    return {memory_.get(), count_, type_,
            type_ == ElementType::i8 ? reinterpret_cast<float*>(scales_.get()) : nullptr};
  }
  Floats scales() const {
    Floats found(backend::scales_of(count_));
    vectors_.read(scales_.get(), std::as_writable_bytes(std::span(found)));
    return found;
  }
  /// Decoded here, not by the vectors.
  Floats read() const {
    const std::size_t size = comm::bytes_of(type_);
    std::vector<std::byte> bytes((count_ + guards) * size);
    vectors_.read(memory_.get(), bytes);
    for (std::size_t i = count_ * size; i < bytes.size(); ++i)
      check(bytes[i] == std::byte{0}, "something was written after the end");
    const Floats by = scales();
    Floats values(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, bytes.data() + i * size, size);
      const auto half = static_cast<std::uint16_t>(bits);
      values[i] = type_ == ElementType::f32   ? std::bit_cast<float>(bits)
                  : type_ == ElementType::f16 ? static_cast<float>(std::bit_cast<laws::Half>(half))
                  : type_ == ElementType::bf16
                      ? widen_bf16(half)
                      : static_cast<float>(static_cast<std::int8_t>(bits)) * by[i / block];
    }
    return values;
  }

 private:
  static constexpr std::size_t guards = 64;
  Vectors& vectors_;
  ElementType type_;
  std::size_t count_;
  backend::DeviceMemory memory_, scales_;
};

float rounded(ElementType type, float value) {
  if (type == ElementType::f16) return static_cast<float>(static_cast<laws::Half>(value));
  return type == ElementType::bf16 ? widen_bf16(round_to_bf16(value)) : value;
}

/// Of many sizes, with ties and values next to the borders of the formats.
Floats awkward(std::size_t count) {
  constexpr float some[] = {0.f,      1.f,       -1.f,      0x1.002p0f, 0x1.006p0f, 65504.f,
                            65519.9f, 65520.f,   0x1p-14f,  0x1p-24f,   0x1.8p-25f, 0x1p-25f,
                            1e-30f,   0x1.01p0f, 0x1.03p0f, 3.3e38f,    -2.5f,      127.f};
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = i % 3 == 0 ? some[i / 3 % std::size(some)] : 2 * unit(philox(5, i, 0).word[0]) - 1;
  return values;
}

/// What is wrong with `got`, which should be `wanted` in this format.
std::string fault(const char* what, ElementType type, const Floats& got, const Floats& wanted,
                  const Floats& scales) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const float want = wanted[i];
    bool right = same(got[i], rounded(type, want));
    if (type == ElementType::i8) {
      const float scale = scales[i / block];
      right = std::isnan(scale) ? std::isnan(got[i])
                                : std::abs(got[i] - want) <= scale * 0.5001f + 1e-30f;
    }
    if (!right)
      return fmt::format("{}: value {} of {} {} is {} instead of {}", what, i, wanted.size(),
                         name_of(type), got[i], rounded(type, want));
  }
  return {};
}

Floats whole_numbers(std::size_t count, std::size_t seed) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((i * 7 + seed * 13) % 31) - 15;
  return values;
}

std::string fault_of_special(Vectors& vectors) {
  Floats values(3 * block, 1);
  values[3] = infinity;
  values[4] = -infinity;
  values[block + 5] = nan;
  for (const ElementType type : every_format) {
    const Held held(vectors, type, values);
    const Floats got = held.read();
    const bool eight = type == ElementType::i8;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!same(got[i], eight && i < 2 * block ? nan : values[i]) &&
          !(eight && std::abs(got[i] - 1) < 1e-6f))
        return fmt::format("{} of {} became {}", values[i], name_of(type), got[i]);
  }
  // Of 8 bits: whole numbers with the scale 1, ties, and values too small for a scale.
  Floats whole(block, 0);
  for (std::size_t i = 0; i < 255; ++i) whole[i] = static_cast<float>(i) - 127;
  const Held exact(vectors, ElementType::i8, whole);
  if (exact.read() != whole || exact.scales()[0] != 1) return "-127 to 127 are not exact in i8";
  const Held ties(vectors, ElementType::i8, {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f});
  if (ties.read() != Floats{127, 0, 2, 2, 0, -2}) return "ties in i8 do not go to even";
  const Held tiny(vectors, ElementType::i8, {1e-31f, -1e-38f});
  return tiny.read() == Floats{0, 0} ? "" : "tiny values in i8 are not 0";
}

std::string fault_of_sums(Vectors& vectors, ElementType from, ElementType to, std::size_t count) {
  const Floats a = whole_numbers(count, 1), b = whole_numbers(count, 2);
  const Held added(vectors, from, a), sum(vectors, to, b);
  const Floats had = sum.read(), adds = added.read();
  vectors.add(-2, added.all(), sum.all());
  Floats wanted(count);
  for (std::size_t i = 0; i < count; ++i) wanted[i] = had[i] - 2 * adds[i];
  const std::string wrong = fault(fmt::format("a sum with {}", name_of(from)).c_str(), to,
                                  sum.read(), wanted, sum.scales());
  // 8-bit parts are no whole numbers, and whether product and sum round together is not defined.
  const bool whole = from != ElementType::i8 || to == ElementType::i8;
  return whole ? wrong : "";
}

std::string fault_of_one_format(Vectors& vectors, ElementType type, std::size_t count) {
  const Held values(vectors, type, whole_numbers(count, 3));
  Floats wanted = values.read();
  vectors.scale(0.5f, values.all());
  for (float& v : wanted) v *= 0.5f;
  std::string wrong = fault("a product", type, values.read(), wanted, values.scales());
  vectors.add(1, values.all(), values.all());
  for (float& v : wanted) v *= 2;
  if (wrong.empty())
    wrong = fault("a vector added to itself", type, values.read(), wanted, values.scales());
  const Held most(vectors, ElementType::f32, 1);
  vectors.largest(values.all(), static_cast<float*>(most.all().data));
  float largest = 0;
  for (const float v : values.read()) largest = std::max(largest, std::abs(v));
  if (wrong.empty() && !same(most.read()[0], largest))
    wrong = fmt::format("the largest of {} {} is {} instead of {}", count, name_of(type),
                        most.read()[0], largest);
  return wrong;
}

}  // namespace

std::string fault_of_casts(Vectors& vectors) {
  for (const ElementType from : every_format)
    for (const ElementType to : every_format)
      for (const std::size_t count : lengths) {
        const Held source(vectors, from, awkward(count)), target(vectors, to, count);
        const Floats had = source.read();
        std::string wrong = fault("a first cast", from, had, awkward(count), source.scales());
        vectors.cast(source.all(), target.all());
        if (wrong.empty())
          wrong = fault(fmt::format("a cast from {}", name_of(from)).c_str(), to, target.read(),
                        had, target.scales());
        if (!wrong.empty()) return wrong;
      }
  return fault_of_special(vectors);
}

std::string fault_of_arithmetic(Vectors& vectors) {
  for (const std::size_t count : lengths)
    for (const ElementType type : every_format) {
      std::string wrong = fault_of_one_format(vectors, type, count);
      for (const ElementType to : every_format)
        if (wrong.empty()) wrong = fault_of_sums(vectors, type, to, count);
      if (!wrong.empty()) return wrong;
    }
  for (const float worst : {infinity, nan})
    for (const ElementType type : every_format) {
      Floats values = whole_numbers(700, 4);
      values[600] = worst;
      const Held spoilt(vectors, type, values), most(vectors, ElementType::f32, 1);
      auto* found = static_cast<float*>(most.all().data);
      vectors.largest(spoilt.all(), found);
      const float got = most.read()[0];
      if (!same(got, type == ElementType::i8 ? nan : worst))
        return fmt::format("the largest of {} with {} is {}", name_of(type), worst, got);
    }
  return {};
}

std::string fault_of_vectors(Vectors& vectors) {
  const Held three(vectors, ElementType::f32, 3), four(vectors, ElementType::f32, 4);
  if (three.read() != Floats{0, 0, 0}) return "new memory is not zero";
  Vector words = three.all(), bare = three.all(), nowhere = three.all();
  words.type = ElementType::i32;
  bare.type = ElementType::i8;
  nowhere.data = nullptr;
  auto* found = static_cast<float*>(four.all().data);
  const std::pair<std::function<void()>, const char*> wrongs[] = {
      {[&] { vectors.cast(three.all(), four.all()); }, "cast: 3 values meet 4"},
      {[&] { vectors.add(1, words, three.all()); }, "add: a vector of 32-bit"},
      {[&] { vectors.scale(2, bare); }, "scale: 8-bit values without scales"},
      {[&] { vectors.largest(nowhere, found); }, "largest: there is no memory for 3 values"},
  };
  for (const auto& [call, words_of] : wrongs) try {
      call();
      return fmt::format("no error \"{}\"", words_of);
    } catch (const Error& error) {
      if (std::string(error.what()).find(words_of) != 0) return error.what();
    }
  return {};
}

}  // namespace lockstep::test
