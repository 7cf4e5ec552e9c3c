#pragma once

// Why some weight gradients in bf16 are ours. oneDNN 2.6.3's lose up to half of the rate where
// lines are short or the filter has a stride, as in each network's last stage. Ours copies two
// pixels next to each other, as the instruction wants them, tap by tap, and adds the products where
// they belong. oneDNN keeps the shapes in which it is as fast, and processors with AMX.

#include <algorithm>
#include <cstddef>

#include "ports/cpu/kernels/kernels.hpp"

namespace lockstep::cpu {

// The weight gradient of a convolution in bf16. For each tap of the filter it is one product of
// matrices, summed over all pixels of the output: the transpose of the inputs that the tap reads,
// times the gradients of the outputs. AVX512-BF16 multiplies two pixels at a time, so both are
// first copied with each channel's values of two pixels next to each other.

/// A convolution's shape: `in` is a multiple of 16 channels, `out` of 32; `above`: lines of
/// padding.
struct TapShape {
  std::size_t in, out, height, width, out_height, out_width, kernel, stride, above, padding;
};

/// Pixels of the output that are copied at a time: they stay in the second-level cache or
/// near it.
inline std::size_t tap_pixels(const TapShape& shape) {
  constexpr std::size_t bytes = std::size_t{1} << 20, fewest = 256, most = 512;
  return std::clamp(bytes / 2 / (shape.in + shape.out), fewest, most) / 2 * 2;
}

inline std::size_t tap_scratch_bytes(const TapShape& shape) {
  return tap_pixels(shape) * (shape.in + shape.out) * bytes_of(Storage::bf16);
}

/// gradient [out / 16, in / 16, kernel, kernel, 16, 16 of out] = or += the sum over `rows` images
/// x [rows, height, width, in], dy [rows, out_height, out_width, out].
using TapGradient = void (*)(const TapShape& shape, std::size_t rows, const void* x, const void* dy,
                             bool add, float* gradient, std::byte* scratch);

/// For images in that storage; nullptr where oneDNN is faster: in fp32, and on processors with AMX.
TapGradient tap_gradient(Storage storage);

}  // namespace lockstep::cpu
