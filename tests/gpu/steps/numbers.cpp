#include "tests/gpu/steps/numbers.hpp"

#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/half.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::test::steps {

namespace {

std::size_t bytes_of(const Stored& stored) {
  switch (stored.form) {
    case Form::fp32:
      return stored.count * 4;
    case Form::bf16:
    case Form::fp16:
      return stored.count * 2;
    case Form::bytes:
      return stored.count;
    case Form::bits:
      return (stored.count + 7) / 8;
  }
  throw Error("a form without a size");
}

void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  cuda::CudaStream stream;
  cuda::check_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream.get()), "cudaMemcpyAsync");
  stream.synchronize();
}

std::uint32_t encoded(Form form, double number) {
  const auto value = static_cast<float>(number);
  if (form == Form::fp32) return std::bit_cast<std::uint32_t>(value);
  if (form == Form::bf16) return round_to_bf16(value);
  if (form == Form::fp16) return round_to_f16(value);
  return static_cast<std::uint32_t>(number);
}
double decoded(Form form, std::uint32_t word) {
  const auto half = static_cast<std::uint16_t>(word);
  if (form == Form::fp32) return double{std::bit_cast<float>(word)};
  if (form == Form::bf16) return double{widen_bf16(half)};
  if (form == Form::fp16) return double{widen_f16(half)};
  return word;
}

/// Calls body(x, w, y) with the indices of each product's numbers.
template <class Body>
void each_product(const cuda::ConvShape& s, const Body& body) {
  for (std::size_t n = 0; n < s.batch; ++n)
    for (std::size_t oy = 0; oy < s.out_height; ++oy)
      for (std::size_t ox = 0; ox < s.out_width; ++ox)
        for (std::size_t k = 0; k < s.kernel_pixels(); ++k) {
          const std::size_t y = oy * s.stride + k / s.kernel_width,
                            x = ox * s.stride + k % s.kernel_width;
          if (y < s.padding || x < s.padding) continue;
          if (y - s.padding >= s.height || x - s.padding >= s.width) continue;
          const std::size_t from =
              ((n * s.height + y - s.padding) * s.width + x - s.padding) * s.channels;
          const std::size_t to = ((n * s.out_height + oy) * s.out_width + ox) * s.outputs;
          const std::size_t ins = s.group_channels();
          for (std::size_t o = 0; o < s.outputs; ++o)
            for (std::size_t c = 0; c < ins; ++c)
              body(from + o / s.group_outputs() * ins + c, (o * s.kernel_pixels() + k) * ins + c,
                   to + o);
        }
}

}  // namespace

Form form_of(cuda::Storage storage) {
  switch (storage) {
    case cuda::Storage::fp32:
      return Form::fp32;
    case cuda::Storage::bf16:
      return Form::bf16;
    case cuda::Storage::fp16:
      return Form::fp16;
  }
  throw Error("a storage without a form");
}

Numbers read(const Stored& from) {
  std::vector<std::uint8_t> memory(bytes_of(from));
  copy(memory.data(), from.at, memory.size(), cudaMemcpyDeviceToHost);
  Numbers numbers(from.count);
  const std::size_t each = from.form == Form::bits ? 1 : memory.size() / from.count;
  for (std::size_t i = 0; i < from.count; ++i) {
    std::uint32_t word = 0;
    if (from.form == Form::bits)
      word = memory[i / 8] >> i % 8 & 1;
    else
      std::memcpy(&word, &memory[i * each], each);
    numbers[i] = decoded(from.form, word);
  }
  return numbers;
}

void write(const Stored& to, const Numbers& numbers) {
  std::vector<std::uint8_t> memory(bytes_of(to));
  const std::size_t each = to.form == Form::bits ? 1 : memory.size() / to.count;
  for (std::size_t i = 0; i < to.count; ++i) {
    const std::uint32_t word = encoded(to.form, numbers.at(i));
    if (to.form == Form::bits)
      memory[i / 8] = static_cast<std::uint8_t>(memory[i / 8] | word << i % 8);
    else
      std::memcpy(&memory[i * each], &word, each);
  }
  copy(to.at, memory.data(), memory.size(), cudaMemcpyHostToDevice);
}

Numbers rounded(Form form, Numbers numbers) {
  for (double& number : numbers) number = decoded(form, encoded(form, number));
  return numbers;
}

double rounding(Form form) {
  switch (form) {
    case Form::fp32:
      return 0x1p-24;
    case Form::bf16:
      return 0x1p-8;
    case Form::fp16:
      return 0x1p-11;
    case Form::bytes:
    case Form::bits:
      return 0;
  }
  throw Error("a form without a rounding");
}

Sums::Sums(Numbers exact) : value(std::move(exact)), size(value.size()) {
  for (std::size_t i = 0; i < size.size(); ++i) size[i] = std::abs(value[i]);
}

Sums forward(const cuda::ConvShape& shape, const Sums& x, const Sums& w) {
  Sums y(shape.output_count());
  each_product(shape, [&](std::size_t i, std::size_t j, std::size_t k) {
    y.add(k, x.value[i] * w.value[j], x.size[i] * w.size[j]);
  });
  return y;
}

Sums data_gradient(const cuda::ConvShape& shape, const Sums& w, const Sums& y) {
  Sums x(shape.input_count());
  each_product(shape, [&](std::size_t i, std::size_t j, std::size_t k) {
    x.add(i, y.value[k] * w.value[j], y.size[k] * w.size[j]);
  });
  return x;
}

Sums weight_gradient(const cuda::ConvShape& shape, const Sums& x, const Sums& y) {
  Sums w(shape.weight_count());
  each_product(shape, [&](std::size_t i, std::size_t j, std::size_t k) {
    w.add(j, x.value[i] * y.value[k], x.size[i] * y.size[k]);
  });
  return w;
}

Output output(const std::string& step, const std::string& what, const Stored& where, Sums want,
              const Numbers& more, std::optional<Form> on_the_way) {
  Output made{step, what, where, std::move(want.value), std::move(want.size)};
  const Form form = on_the_way.value_or(where.form);
  const double u = rounding(form);
  const double least = form == Form::fp16 ? 0x1p-24 : 0;  // the smallest number
  for (std::size_t i = 0; i < made.want.size(); ++i) {
    double& allowed = made.allowed[i];
    allowed = form == Form::fp32 ? 64 * u * allowed
                                 : 2 * u * std::abs(made.want[i]) + u / 4 * allowed + least;
    if (!more.empty()) allowed += more.at(i);
  }
  return made;
}

double error(const Output& output) {
  const Numbers got = read(output.where);
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double off = std::abs(got[i] - output.want.at(i));
    if (off <= output.allowed.at(i) * largest) continue;
    largest = off / output.allowed[i];  // a NaN stays a NaN
    if (std::isnan(largest)) return std::numeric_limits<double>::infinity();
  }
  return largest;
}

void spoil(const Output& output) {
  Numbers numbers = read(output.where);
  for (double& number : numbers) {
    if (output.where.form == Form::bits)
      number = 1 - number;
    else
      number = output.where.form == Form::bytes ? number + 1 : number * (1 + 1. / 16);
  }
  write(output.where, numbers);
}

}  // namespace lockstep::test::steps
