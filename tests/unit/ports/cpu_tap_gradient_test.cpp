// Compares weight gradients that are summed tap by tap with loops in double precision.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <iostream>

#include "lockstep/base/rng.hpp"
#include "ports/cpu/kernels/tap_gradient.hpp"

using namespace lockstep;
using namespace lockstep::cpu;

namespace {

using Halves = std::vector<std::uint16_t>;

/// Whole and half numbers from -4 to 3.5: exact in bf16.
Halves random_halves(std::size_t count, std::uint64_t seed) {
  Halves values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(philox(seed, i, 0).word[0] % 16) / 2 - 4;
    values[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  }
  return values;
}

double number(std::uint16_t half) { return std::bit_cast<float>(std::uint32_t{half} << 16); }

struct TapProblem {
  TapShape shape;
  std::size_t rows;
};

/// One element of the gradient, and where it is.
double expected(const TapProblem& p, const Halves& x, const Halves& dy, std::size_t o,
                std::size_t i, std::size_t ky, std::size_t kx) {
  const TapShape& s = p.shape;
  double sum = 0;
  for (std::size_t n = 0; n < p.rows; ++n)
    for (std::size_t oy = 0; oy < s.out_height; ++oy)
      for (std::size_t ox = 0; ox < s.out_width; ++ox) {
        const std::size_t y = oy * s.stride + ky - s.above, at = ox * s.stride + kx - s.padding;
        if (y >= s.height || at >= s.width) continue;  // in the padding
        sum += number(x[((n * s.height + y) * s.width + at) * s.in + i]) *
               number(dy[((n * s.out_height + oy) * s.out_width + ox) * s.out + o]);
      }
  return sum;
}

std::size_t place(const TapShape& s, std::size_t o, std::size_t i, std::size_t tap) {
  const std::size_t taps = s.kernel * s.kernel;
  return (((o / 16 * (s.in / 16) + i / 16) * taps + tap) * 16 + i % 16) * 16 + o % 16;
}

}  // namespace

TEST_CASE("weight gradients summed tap by tap are those of loops, for every kind of convolution",
          "[tap_gradient]") {
  const TapGradient gradient_of = tap_gradient(Storage::bf16);
  if (!gradient_of) {
    std::cout << "SKIPPED: this processor has no AVX512-BF16, or it has AMX\n";
    return;
  }
  CHECK(tap_gradient(Storage::fp32) == nullptr);
  const TapProblem problems[] = {
      {{64, 64, 7, 7, 7, 7, 1, 1, 0, 0}, 3},        // an odd number of pixels
      {{96, 64, 28, 14, 28, 14, 1, 1, 0, 0}, 3},    // more pixels than one block
      {{128, 96, 8, 8, 4, 4, 1, 2, 0, 0}, 2},       // with a stride
      {{64, 64, 6, 5, 6, 5, 3, 1, 1, 1}, 5},        // with padding
      {{64, 96, 9, 9, 5, 5, 3, 2, 1, 1}, 3},        // with both
      {{80, 64, 11, 11, 6, 6, 7, 2, 3, 3}, 1},      // of a large filter
      {{16, 1024, 21, 21, 21, 21, 1, 1, 0, 0}, 1},  // the narrowest inputs
      {{64, 64, 6, 5, 5, 5, 3, 1, 0, 1}, 1},        // a band of lines, without padding above
  };
  for (const TapProblem& p : problems) {
    const TapShape& s = p.shape;
    INFO(s.in << " to " << s.out << " channels, " << s.height << " x " << s.width << ", "
              << s.kernel << " x " << s.kernel << ", stride " << s.stride);
    const Halves x = random_halves(p.rows * s.height * s.width * s.in, 1);
    const Halves dy = random_halves(p.rows * s.out_height * s.out_width * s.out, 2);
    const std::size_t taps = s.kernel * s.kernel;
    std::vector<float> sums(s.in * s.out * taps, 0.5f);
    std::vector<std::byte> scratch(tap_scratch_bytes(s) + 1, std::byte{0x5a});
    gradient_of(s, p.rows, x.data(), dy.data(), false, sums.data(), scratch.data());
    const std::vector<float> once = sums;
    gradient_of(s, p.rows, x.data(), dy.data(), true, sums.data(), scratch.data());
    CHECK(scratch.back() == std::byte{0x5a});
    // All numbers are multiples of 1/4 below 2^22, so each sum is exact in any order.
    std::size_t wrong = 0;
    for (std::size_t k = 0; k < 4000; ++k) {
      const std::size_t o = k * 7 % s.out, i = k * 5 % s.in, tap = k * 11 % taps;
      const double sum = expected(p, x, dy, o, i, tap / s.kernel, tap % s.kernel);
      wrong += once[place(s, o, i, tap)] != sum || sums[place(s, o, i, tap)] != 2 * sum;
    }
    CHECK(wrong == 0);
  }
}
