#include "ports/cuda/kernels/image/fold.hpp"

#include <algorithm>

#include "ports/cuda/kernels/divider.cuh"
#include "ports/cuda/kernels/image/pixel.cuh"

namespace lockstep::cuda {

namespace {

/// What remains of n; n becomes the quotient.
__device__ unsigned take(unsigned& n, const Divider& by) {
  const unsigned quotient = by.quotient(n), rest = n - quotient * by.divisor;
  n = quotient;
  return rest;
}

struct FoldedImages {
  unsigned count;  ///< folded pixels
  Divider rows, columns;
  unsigned height, width;                 ///< of the image
  int channels, stride, padding, stored;  ///< stored: channels of a folded pixel
};

/// One thread writes one folded pixel. Where channels and stride are known (0: they are not), all
/// loops unroll. REQUIRES: fewer than 2^31 threads.
template <class In, class T, int known_channels, int known_stride>
__global__ void __launch_bounds__(block_threads)
    fold_kernel(const In* __restrict__ pixels, const float* __restrict__ scale,
                const float* __restrict__ shift, FoldedImages of, T* __restrict__ out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= of.count) return;
  const int channels = known_channels > 0 ? known_channels : of.channels;
  const int stride = known_stride > 0 ? known_stride : of.stride;
  const int stored = known_stride * known_channels > 0
                         ? (known_stride * known_stride * known_channels + 7) / 8 * 8
                         : of.stored;
  unsigned n = i;
  const int left = static_cast<int>(take(n, of.columns)) * stride - of.padding;
  const int top = static_cast<int>(take(n, of.rows)) * stride - of.padding;
  const In* image =
      pixels + std::size_t{n} * of.height * of.width * static_cast<unsigned>(channels);
  int c = 0, sub_x = 0, sub_y = 0;
#pragma unroll
  for (int first = 0; first < stored; first += width<T>) {
    float values[width<T>] = {};
#pragma unroll
    for (int k = 0; k < width<T>; ++k) {
      // Unsigned: a position above or left of the image becomes larger than the image.
      const auto y = static_cast<unsigned>(top + sub_y), x = static_cast<unsigned>(left + sub_x);
      const bool inside = sub_y < stride && y < of.height && x < of.width;
      // Outside it reads the first pixel in vain, which takes less than not to read.
      const unsigned pixel = inside ? y * of.width + x : 0;
      const In* from = image + std::size_t{pixel} * static_cast<unsigned>(channels);
      const float value = entered(from[c], scale, shift, c);
      values[k] = inside ? value : 0.f;
      if (++c < channels) continue;
      c = 0;
      if (++sub_x < stride) continue;
      sub_x = 0;
      ++sub_y;
    }
    store(out + std::size_t{i} * static_cast<unsigned>(stored) + first, values);
  }
}

/// More pixels than one launch can count take several.
template <class In>
void enter_folded(const ImageInput& in, const Fold& fold, Storage storage, void* out,
                  cudaStream_t stream) {
  const std::size_t each = fold.folded_pixels();
  const auto from = static_cast<std::size_t>(fold.channels) * fold.image_pixels();
  const auto to = static_cast<std::size_t>(fold.folded_channels()) * each;
  const std::size_t images = in.count / fold.image_pixels();
  const std::size_t most = std::max<std::size_t>(1, (std::size_t{1} << 30) / each);
  FoldedImages of{0,
                  Divider(fold.folded_height()),
                  Divider(fold.folded_width()),
                  static_cast<unsigned>(fold.height),
                  static_cast<unsigned>(fold.width),
                  fold.channels,
                  fold.stride,
                  fold.padding,
                  fold.folded_channels()};
  const bool usual = fold.channels == 3 && fold.stride == 2;
  with_type(storage, [&]<class T>(T) {
    for (std::size_t done = 0; done < images; done += most) {
      of.count = static_cast<unsigned>(std::min(most, images - done) * each);
      launch("fold_kernel", usual ? fold_kernel<In, T, 3, 2> : fold_kernel<In, T, 0, 0>,
             blocks_for(of.count), block_threads, stream,
             static_cast<const In*>(in.pixels) + done * from, in.scale, in.shift, of,
             static_cast<T*>(out) + done * to);
    }
  });
}

/// Divides by a fold's numbers.
struct FoldDividers {
  explicit FoldDividers(const Fold& fold)
      : kernel(fold.kernel),
        folded_kernel(fold.folded_kernel()),
        stride(fold.stride),
        channels(fold.channels),
        quads(fold.padded / 4),
        stored(fold.folded_channels()) {}
  Divider kernel, folded_kernel, stride, channels, quads, stored;
};

/// One thread writes one folded weight.
template <class T>
__global__ void fold_weights_kernel(const T* from, FoldDividers by, unsigned count, T* to) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned output = i;
  unsigned sub_y = take(output, by.stored);
  const unsigned block_x = take(output, by.folded_kernel), block_y = take(output, by.folded_kernel);
  const unsigned c = take(sub_y, by.channels), sub_x = take(sub_y, by.stride);
  const unsigned kernel = by.kernel.divisor, stride = by.stride.divisor;
  const unsigned y = block_y * stride + sub_y, x = block_x * stride + sub_x;
  const bool exists = sub_y < stride && y < kernel && x < kernel;
  to[i] = exists ? from[((output * kernel + y) * kernel + x) * by.quads.divisor * 4 + c]
                 : rounded<T>(0.f);
}

/// One thread writes four channels of one weight's gradient.
template <class T>
__global__ void unfold_kernel(const T* from, FoldDividers by, unsigned count, bool accumulate,
                              float* to) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned output = i;
  const unsigned first = take(output, by.quads) * 4;
  unsigned block_x = take(output, by.kernel), block_y = take(output, by.kernel);
  const unsigned sub_x = take(block_x, by.stride), sub_y = take(block_y, by.stride);
  const unsigned side = by.folded_kernel.divisor, channels = by.channels.divisor;
  from += ((output * side + block_y) * side + block_x) * by.stored.divisor +
          (sub_y * by.stride.divisor + sub_x) * channels;
  float values[4] = {};
  if (accumulate) load(to + std::size_t{i} * 4, values);
#pragma unroll
  for (unsigned k = 0; k < 4; ++k)
    if (first + k < channels) values[k] += to_float(from[first + k]);
  store(to + std::size_t{i} * 4, values);
}

}  // namespace

void fold_bytes(const ImageInput& in, const Fold& fold, Storage storage, void* out,
                cudaStream_t stream) {
  enter_folded<std::uint8_t>(in, fold, storage, out, stream);
}

void fold_floats(const ImageInput& in, const Fold& fold, Storage storage, void* out,
                 cudaStream_t stream) {
  enter_folded<float>(in, fold, storage, out, stream);
}

void fold_weights(const void* from, const Fold& fold, Storage storage, void* to,
                  cudaStream_t stream) {
  const int side = fold.folded_kernel();
  const auto count = static_cast<unsigned>(fold.outputs * side * side * fold.folded_channels());
  with_type(storage, [&]<class T>(T) {
    launch("fold_weights_kernel", fold_weights_kernel<T>, blocks_for(count), block_threads, stream,
           static_cast<const T*>(from), FoldDividers(fold), count, static_cast<T*>(to));
  });
}

void unfold_gradient(const void* from, const Fold& fold, Storage storage, bool accumulate,
                     float* to, cudaStream_t stream) {
  const auto count =
      static_cast<unsigned>(fold.outputs * fold.kernel * fold.kernel * fold.padded / 4);
  with_type(storage, [&]<class T>(T) {
    launch("unfold_kernel", unfold_kernel<T>, blocks_for(count), block_threads, stream,
           static_cast<const T*>(from), FoldDividers(fold), count, accumulate, to);
  });
}

}  // namespace lockstep::cuda
