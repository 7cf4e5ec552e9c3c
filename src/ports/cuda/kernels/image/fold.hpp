#pragma once

#include "ports/cuda/kernels/kernels.hpp"

// A strided convolution over the image, computed as one of stride 1 whose kernel is one pixel wide.
// Libraries have few engines for three channels and a stride, and good ones for the folded form,
// which gives the same sums.
//
//   windows       row y of the output reads rows y * stride - padding + k of the image, k < kernel
//   cell          stride x stride pixels. Row b of the cells holds rows b * stride - padding + sub
//                 of the image, sub < stride; zeros where the image ends
//   so            k is in row y + k / stride of the cells, with sub = k % stride; so for columns
//   folded pixel  (b, x) holds what column x of the output reads in row b of the cells: the cells
//                 (b, x), (b, x + 1), ..., as many as a window is wide
//   channels      cell * cell channels + (sub of the row * stride + sub of the column) * channels
//                 + c; zeros after those of each cell
//
// Weights that the network does not have, because `stride` does not divide `kernel`, are zero.
namespace lockstep::cuda {

/// fold_elements() and fold_floats() keep at least one folded pixel in shared memory.
constexpr int most_folded_channels = 2048;

/// A multiple of 8: a cell is whole 16-byte accesses in 16 bits.
constexpr int cell_channels_of(int stride, int channels) {
  return (stride * stride * channels + 7) / 8 * 8;
}

struct Fold {
  int outputs = 1, kernel = 1, stride = 1, padding = 0;  ///< of the network's convolution
  int out_height = 1, out_width = 1;
  int height = 1, width = 1;     ///< of the image
  int channels = 1, padded = 4;  ///< of the image; of the arena's weights, a multiple of 4
  bool operator==(const Fold&) const = default;

  int cells() const { return (kernel + stride - 1) / stride; }  ///< of a window, each way
  int cell_channels() const { return cell_channels_of(stride, channels); }
  int folded_height() const { return out_height + cells() - 1; }
  int folded_width() const { return out_width; }
  int folded_channels() const { return cells() * cell_channels(); }
  std::size_t image_pixels() const {
    return static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
  }
  std::size_t folded_pixels() const {
    return static_cast<std::size_t>(folded_height()) * static_cast<std::size_t>(folded_width());
  }
};

/// As normalise_elements() and convert_floats(), but folded: out [images, folded height, folded
/// width, folded channels]. REQUIRES: in.count whole images, fewer than 2^31 folded rows, and at
/// most most_folded_channels.
void fold_elements(data::Element element, const ImageInput& in, const Fold& fold, Storage storage,
                   void* out, cudaStream_t stream);
void fold_floats(const ImageInput& in, const Fold& fold, Storage storage, void* out,
                 cudaStream_t stream);

/// from: [outputs, kernel, kernel, padded]. to: [outputs, cells, 1, folded channels]. Both stored
/// as `storage`.
void fold_weights(const void* from, const Fold& fold, Storage storage, void* to,
                  cudaStream_t stream);
/// The other way for gradients, into the arena: to[i] = from[...], or to[i] + from[...]. What
/// belongs to no weight is thrown away; the gradient of a padded channel is 0.
void unfold_gradient(const void* from, const Fold& fold, Storage storage, bool accumulate,
                     float* to, cudaStream_t stream);

}  // namespace lockstep::cuda
