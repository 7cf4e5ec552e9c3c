#pragma once

// Why Winograd's algorithm is ours, not oneDNN's. oneDNN 2.6.3's wants images in blocks of
// channels, so each chunk would be copied twice, and it transforms the weights in each call. Ours
// works on the backend's chunks as they are, transforms the weights once a step, and adds a weight
// gradient where it belongs. An output's bits depend on its own row alone. Weights that would take
// more memory than it saves time are transformed panel by panel. Its errors are 4 to 13 times those
// of a direct convolution, and a hundredth of TF32's (`cpu_winograd_test.cpp` states both bounds).

#include <algorithm>
#include <cstddef>

#include "ports/cpu/kernels/kernels.hpp"

namespace lockstep::cpu {

// Convolutions of 3 x 3 with stride 1 and padding 1 by Winograd's minimal filtering (Lavin and Gray
// 2016). Images are float or bf16 [rows, height, width, channels]; channels are multiples of 16.
// Weights and transforms are float. A tile of outputs and the inputs that it reads are transformed
// to planes, in each of which a convolution is one product of matrices. There are two forms:
// - F(4 x 4, 3 x 3): tiles of 4 x 4 outputs, 36 planes, products in float: a quarter of the
//   multiplications;
// - F(2 x 2, 3 x 3): tiles of 2 x 2 outputs, 16 planes, products of values rounded to bf16: 2.25
//   times fewer multiplications, twice as many at a time. Its transforms only add, and halve
//   weights, so that the rounding costs about as much as that of direct convolutions in bf16 again.

// One tile of F(4 x 4, 3 x 3) in one channel. Tiles of outputs (o) touch each other; the inputs
// that they read overlap by two pixels. Plane p has one number of each tile and channel.
//
//    x: 6 x 6 inputs           V: 36 numbers                      M: 36 sums           y: 4 x 4
//   +-------------+           +-+-+-+-+-+-+                      +-+-+-+-+-+-+
//   | . . . . . . |           | | | | | | |                      | | | | | | |       +---------+
//   | . o o o o . |           +-+-+-+-+-+-+    in each plane p   +-+-+-+-+-+-+       | o o o o |
//   | . o o o o . |  B^T x B  | | |p| | | |    M = V U:          | | |p| | | |       | o o o o |
//   | . o o o o . |  ------>  +-+-+-+-+-+-+    ------------->    +-+-+-+-+-+-+  -->  | o o o o |
//   | . o o o o . |           :           :    [tiles, out] =    :           :       | o o o o |
//   | . . . . . . |           +-+-+-+-+-+-+    [tiles, in]       +-+-+-+-+-+-+       +---------+
//   +-------------+                            [in, out]
//
//    U = G g G^T: of the 3 x 3 weights of each input and output, 36 numbers. y = A^T M A.

/// The images of both sides of a convolution. They may be bands of lines: a pass then reads a line
/// above its first and one below its last where its source has them.
struct WinogradImages {
  std::size_t rows, height, width;
  std::size_t above = 0, below = 0;  ///< lines of the source beyond the band; then rows is 1
  /// Tiles of `side` x `side` outputs.
  std::size_t tiles(std::size_t side) const {
    return rows * ((height + side - 1) / side) * ((width + side - 1) / side);
  }
};

/// The channels of one pass. A data gradient is a convolution from the gradient of the outputs to
/// that of the inputs, with rotated weights.
struct WinogradChannels {
  std::size_t in, out;
  bool rotated = false;
};

/// The widest panel of transformed weights, the most inputs of one that is transformed in a call,
/// so that it stays in cache, and the inputs of a block of their gradients.
inline constexpr std::size_t winograd_width = 32, winograd_depth = 128, winograd_inputs = 64;
/// Channels that the kernels can have.
inline constexpr std::size_t winograd_most_channels = 2048;

/// A convolution's weights: transformed, or as they are in the arena. Those are transformed in the
/// call, panel by panel, which takes time but no memory.
struct WinogradWeights {
  const void* transformed;
  const float* plain;
};

/// The tiles and outputs that a call makes. Outputs begin at a multiple of winograd_width.
struct WinogradPart {
  std::size_t first_tile, tiles, first_out, outs;
};

/// What becomes of the products: nothing, or y = relu(product * scale + shift [+ skip]). The skip
/// is like y, and may be y.
struct WinogradAfter {
  const float *scale = nullptr, *shift = nullptr;
  const void* skip = nullptr;
};

/// Memory that a call may write. `tiles`: how many to transform at a time, at least 1.
struct WinogradScratch {
  std::size_t tiles;
  void *values, *panel;
};

/// The distances of planes and of their rows, in words of 4 bytes: a float or two bf16. They are
/// padded, so that they do not all fall into a few sets of a cache.
struct WinogradPlane {
  WinogradPlane(std::size_t rows, std::size_t words) : row(words + 16), size(rows * row + 16) {}
  std::size_t row, size;
};

/// One of the two forms, and the memory that it needs, in floats.
struct WinogradForm {
  std::size_t side;      ///< of a tile, in outputs
  std::size_t per_word;  ///< values in a word, whose products are added at once

  std::size_t planes() const { return (side + 2) * (side + 2); }
  /// Of one convolution's transformed weights.
  std::size_t weights(const WinogradChannels& channels) const {
    return planes() * (channels.in / per_word * channels.out + channels.out);
  }
  /// Of a panel of weights that are transformed in the call; 0 inputs: of a weight gradient alone.
  std::size_t panel(std::size_t inputs) const {
    const std::size_t depth = std::min(inputs, winograd_depth) / per_word;
    return planes() * (std::max(depth, winograd_inputs) * winograd_width + 16);
  }
  /// Of these tiles' pixels and products.
  std::size_t values(std::size_t tiles, const WinogradChannels& channels) const {
    return planes() * (WinogradPlane(tiles, channels.in / per_word).size +
                       WinogradPlane(tiles, winograd_width).size);
  }
  /// Of both sides of these tiles, for a weight gradient.
  std::size_t gradient_values(std::size_t tiles, const WinogradChannels& channels) const {
    const std::size_t rows = (tiles + per_word - 1) / per_word;
    return planes() *
           (WinogradPlane(rows, channels.in).size + WinogradPlane(rows, channels.out).size);
  }
};

/// The kernels for one instruction set. Their sums have one order: a result depends neither on
/// rows or parts in one call nor on `tiles`, but for a weight gradient, which is summed over blocks
/// of tiles.
struct WinogradKernels {
  WinogradForm form;
  /// Part `part` of `parts` of the transformed weights. `weights` is [out / 16, in / 16, 3, 3, 16,
  /// 16 of out] of the convolution itself, also for rotated ones.
  void (*transform_weights)(const WinogradChannels& channels, const float* weights,
                            std::size_t part, std::size_t parts, void* transformed);
  void (*convolve)(const WinogradImages& images, const WinogradPart& part, const void* x,
                   const WinogradChannels& channels, const WinogradWeights& weights,
                   const WinogradAfter& after, void* y, const WinogradScratch& scratch);
  /// gradient (in the weights' format) = or += sum over the rows
  void (*weight_gradient)(const WinogradImages& images, const void* x, const void* dy,
                          const WinogradChannels& channels, bool add, float* gradient,
                          const WinogradScratch& scratch);
};

/// For images in that storage and a convolution with that many channels on the side that has fewer;
/// nullptr where an x86 has no AVX-512, for bf16 no AVX512-BF16, or AMX, which is faster.
const WinogradKernels* winograd_kernels(Storage storage, std::size_t channels);

}  // namespace lockstep::cpu
