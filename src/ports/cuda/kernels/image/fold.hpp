#pragma once

#include "ports/cuda/kernels/kernels.hpp"

// A strided convolution over the image, computed as one of stride 1 (space to depth): stride x
// stride pixels become one folded pixel, which has all their channels. Libraries have few engines
// for three channels and a stride, and good ones for the folded form, which gives the same sums.
//
//   windows       row y of the output reads rows y * stride - padding + k of the image, k < kernel
//   folded pixel  row b holds rows b * stride - padding + sub of the image, sub < stride; zeros
//                 where the image ends
//   so            k is row y + k / stride, with sub = k % stride
//   channels      (sub of the row * stride + sub of the column) * channels + c; zeros after them
//
// Weights that the network does not have, because `stride` does not divide `kernel`, are zero.
namespace lockstep::cuda {

struct Fold {
  int outputs = 1, kernel = 1, stride = 1, padding = 0;  ///< of the network's convolution
  int out_height = 1, out_width = 1;
  int height = 1, width = 1;     ///< of the image
  int channels = 1, padded = 4;  ///< of the image; of the arena's weights, a multiple of 4
  bool operator==(const Fold&) const = default;

  int folded_kernel() const { return (kernel + stride - 1) / stride; }
  int folded_height() const { return out_height + folded_kernel() - 1; }
  int folded_width() const { return out_width + folded_kernel() - 1; }
  int folded_channels() const { return (stride * stride * channels + 7) / 8 * 8; }
  std::size_t image_pixels() const {
    return static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
  }
  std::size_t folded_pixels() const {
    return static_cast<std::size_t>(folded_height()) * static_cast<std::size_t>(folded_width());
  }
};

/// As normalise_bytes() and convert_floats(), but folded: out [images, folded height, folded width,
/// folded channels]. REQUIRES: in.count whole images.
void fold_bytes(const ImageInput& in, const Fold& fold, Storage storage, void* out,
                cudaStream_t stream);
void fold_floats(const ImageInput& in, const Fold& fold, Storage storage, void* out,
                 cudaStream_t stream);

/// from: [outputs, kernel, kernel, padded]. to: [outputs, folded kernel, folded kernel, folded
/// channels]. Both stored as `storage`.
void fold_weights(const void* from, const Fold& fold, Storage storage, void* to,
                  cudaStream_t stream);
/// The other way for gradients, into the arena: to[i] = from[...], or to[i] + from[...]. What
/// belongs to no weight is thrown away; the gradient of a padded channel is 0.
void unfold_gradient(const void* from, const Fold& fold, Storage storage, bool accumulate,
                     float* to, cudaStream_t stream);

}  // namespace lockstep::cuda
