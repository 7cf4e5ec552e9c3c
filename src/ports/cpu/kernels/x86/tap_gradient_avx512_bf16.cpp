#include <immintrin.h>

#include <cstdint>

#include "ports/cpu/kernels/x86/x86_kernels.hpp"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")

namespace lockstep::cpu {
namespace {
#include "ports/cpu/kernels/vector.inc"

/// A value of one pixel, and the same channel's of the next one above it.
using Pair = std::uint32_t;
using Bf16 = std::uint16_t;

/// The widths of copied panels: of inputs, and of the gradients of outputs.
constexpr std::size_t in_width = 16, out_width = 32;
/// Inputs of a block of sums that stay in registers, and vectors of its outputs.
constexpr int block_rows = 8, block_vectors = out_width / 16;

INLINE i16 widened(const Bf16* p) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return (i16)_mm512_maskz_cvtepu16_epi32(0xffff, halves);
}

/// Copies one pair of pixels to panels [channels / width][pairs][width]; a null pixel is zeros.
template <std::size_t width>
INLINE void copy_pair(const Bf16* first, const Bf16* second, std::size_t channels,
                      std::size_t pairs, Pair* to) {
  for (std::size_t c = 0; c < channels; c += 16) {
    const i16 low = first ? widened(first + c) : i16{};
    const i16 high = second ? widened(second + c) << 16 : i16{};
    _mm512_storeu_si512(to + c / width * pairs * width + c % width, (__m512i)(low | high));
  }
}

/// Where a tap reads for one pixel of the output after the other, from pixel `at` on.
class TapReader {
 public:
  INLINE TapReader(const TapShape& shape, const Bf16* x, std::size_t at, std::size_t tap)
      : s_(shape),
        x_(x),
        image_(at / (s_.out_width * s_.out_height)),
        down_(at / s_.out_width % s_.out_height),
        across_(at % s_.out_width),
        tap_y_(tap / s_.kernel),
        tap_x_(tap % s_.kernel) {}
  /// nullptr where the padding is read.
  INLINE const Bf16* next() {
    // A negative place is large without its sign.
    const std::size_t y = down_ * s_.stride + tap_y_ - s_.above,
                      x = across_ * s_.stride + tap_x_ - s_.padding;
    const bool inside = y < s_.height && x < s_.width;
    const std::size_t pixel = (image_ * s_.height + y) * s_.width + x;
    if (++across_ == s_.out_width) {
      across_ = 0;
      if (++down_ == s_.out_height) down_ = 0, ++image_;
    }
    return inside ? x_ + pixel * s_.in : nullptr;
  }

 private:
  const TapShape& s_;
  const Bf16* x_;
  std::size_t image_, down_, across_, tap_y_, tap_x_;
};

/// c [8 inputs][32 outputs] = or += a [pairs, 8]^T b [pairs, 32]; c_block: floats between its two
/// blocks of 16 outputs.
void multiply(const Pair* a, const Pair* b, std::size_t pairs, float* c, std::size_t c_block,
              bool add) {
  const auto at = [&](int r, int v) { return c + static_cast<std::size_t>(v) * c_block + r * 16; };
  v16 sum[block_rows][block_vectors] = {};
  for (int r = 0; r < block_rows; ++r)
    for (int v = 0; v < block_vectors; ++v) __builtin_prefetch(at(r, v), 1);
  for (std::size_t p = 0; p < pairs; ++p, a += in_width, b += out_width) {
    __m512bh w[block_vectors];
    for (int v = 0; v < block_vectors; ++v) w[v] = (__m512bh)_mm512_loadu_si512(b + 16 * v);
    for (int r = 0; r < block_rows; ++r) {
      const auto x = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[r]));
      for (int v = 0; v < block_vectors; ++v)
        sum[r][v] = (v16)_mm512_dpbf16_ps((__m512)sum[r][v], x, w[v]);
    }
  }
  for (int r = 0; r < block_rows; ++r)
    for (int v = 0; v < block_vectors; ++v)
      store(at(r, v), add ? load(at(r, v)) + sum[r][v] : sum[r][v]);
}

/// All inputs and outputs of one tap; `gradient` points to the tap.
void multiply_tap(const TapShape& s, const Pair* x, const Pair* dy, std::size_t pairs,
                  float* gradient, bool add) {
  const std::size_t block = s.kernel * s.kernel * 256, column = s.in / 16 * block;
  for (std::size_t o = 0; o < s.out; o += out_width)
    for (std::size_t i = 0; i < s.in; i += in_width)
      for (std::size_t r = 0; r < in_width; r += block_rows)
        multiply(x + i * pairs + r, dy + o * pairs, pairs,
                 gradient + o / 16 * column + i / 16 * block + r * 16, column, add);
}

}  // namespace

void tap_gradient_avx512_bf16(const TapShape& s, std::size_t rows, const void* x, const void* dy,
                              bool add, float* gradient, std::byte* scratch) {
  const std::size_t pixels = rows * s.out_height * s.out_width, most = tap_pixels(s);
  const std::size_t blocks = (pixels + most - 1) / most;
  const auto* from = static_cast<const Bf16*>(x);
  for (std::size_t block = 0; block < blocks; ++block, add = true) {
    const std::size_t first = pixels * block / blocks;
    const std::size_t count = pixels * (block + 1) / blocks - first, pairs = (count + 1) / 2;
    Pair* x_pairs = reinterpret_cast<Pair*>(scratch);
    Pair* dy_pairs = x_pairs + pairs * s.in;
    const Bf16* out = static_cast<const Bf16*>(dy) + first * s.out;
    for (std::size_t p = 0; p < pairs; ++p, out += 2 * s.out)
      copy_pair<out_width>(out, 2 * p + 1 < count ? out + s.out : nullptr, s.out, pairs,
                           dy_pairs + p * out_width);
    for (std::size_t tap = 0; tap < s.kernel * s.kernel; ++tap) {
      TapReader reader(s, from, first, tap);
      for (std::size_t p = 0; p < pairs; ++p) {
        const Bf16* one = reader.next();
        const Bf16* other = 2 * p + 1 < count ? reader.next() : nullptr;
        copy_pair<in_width>(one, other, s.in, pairs, x_pairs + p * in_width);
      }
      multiply_tap(s, x_pairs, dy_pairs, pairs, gradient + tap * 256, add);
    }
  }
}

}  // namespace lockstep::cpu
