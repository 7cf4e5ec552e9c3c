#pragma once

#include <algorithm>
#include <cstddef>

#include "ports/cpu/kernels/kernels.hpp"

namespace lockstep::cpu {

// Convolutions of 3 x 3 with stride 1 and padding 1 by Winograd's minimal filtering F(4 x 4, 3 x 3)
// (Lavin and Gray 2016). A tile of 4 x 4 outputs reads 6 x 6 inputs. Both are transformed to 36
// planes, in each of which a convolution is one product of matrices: a quarter of the
// multiplications. Images are float or bf16 [rows, height, width, channels]; channels are multiples
// of 16. Transforms and products are in float either way, and weights are float.

/// The images of both sides of a convolution.
struct WinogradImages {
  std::size_t rows, height, width;
  std::size_t tiles() const { return rows * ((height + 3) / 4) * ((width + 3) / 4); }
};

/// The channels of one pass. A data gradient is a convolution from the gradient of the outputs to
/// that of the inputs, with rotated weights.
struct WinogradChannels {
  std::size_t in, out;
  bool rotated = false;
};

/// Floats between two planes, and between two tiles, are padded, so that they do not all fall into
/// a few sets of a cache.
struct WinogradPlane {
  WinogradPlane(std::size_t tiles, std::size_t channels)
      : row(channels + 16), size(tiles * row + 16) {}
  std::size_t row, size;
};

inline constexpr std::size_t winograd_planes = 36;
/// The widest panel of transformed weights, and the inputs of a block of their gradients.
inline constexpr std::size_t winograd_width = 32, winograd_inputs = 64;
/// Channels that the kernels can have.
inline constexpr std::size_t winograd_most_channels = 2048;

/// Floats of one convolution's transformed weights.
inline std::size_t winograd_weights(const WinogradChannels& channels) {
  return winograd_planes * (channels.in * channels.out + channels.out);
}

/// A convolution's weights: transformed, or as they are in the arena. Those are transformed in the
/// call, panel by panel, which takes time but no memory.
struct WinogradWeights {
  const float *transformed, *plain;
};

/// Memory that a call may write. `tiles`: how many to transform at a time, at least 1.
struct WinogradScratch {
  std::size_t tiles;
  float *values, *panel;
  static std::size_t panel_floats(std::size_t inputs) {
    return winograd_planes * (std::max(inputs, winograd_inputs) * winograd_width + 16);
  }
  static std::size_t value_floats(std::size_t tiles, const WinogradChannels& channels) {
    const std::size_t out = std::max(channels.out, winograd_width);
    return winograd_planes *
           (WinogradPlane(tiles, channels.in).size + WinogradPlane(tiles, out).size);
  }
};

/// The kernels for one instruction set. Their sums have one order: a result depends neither on
/// rows in one call nor on `tiles`, but for a weight gradient, which is summed over blocks of
/// tiles.
struct WinogradKernels {
  /// Part `part` of `parts` of the transformed weights. `weights` is [out / 16, in / 16, 3, 3, 16,
  /// 16 of out] of the convolution itself, also for rotated ones.
  void (*transform_weights)(const WinogradChannels& channels, const float* weights,
                            std::size_t part, std::size_t parts, float* transformed);
  void (*convolve)(const WinogradImages& images, const void* x, const WinogradChannels& channels,
                   const WinogradWeights& weights, void* y, const WinogradScratch& scratch);
  /// gradient (in the weights' format) = or += sum over the rows
  void (*weight_gradient)(const WinogradImages& images, const void* x, const void* dy,
                          const WinogradChannels& channels, bool add, float* gradient,
                          const WinogradScratch& scratch);
};

extern const WinogradKernels winograd_avx512, winograd_avx512_bf16;

/// For images in that storage; nullptr where this processor has no AVX-512, for bf16 no
/// AVX512-BF16.
const WinogradKernels* winograd_kernels(Storage storage);

}  // namespace lockstep::cpu
