#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "ports/cuda/kernels/divider.cuh"
#include "ports/cuda/kernels/vector.cuh"

// Each thread writes one 16-byte access of the output, or those of a tile of pixels. It gathers
// instead of scattering, so it needs no atomics and gives the same bits each time.
namespace lockstep::cuda {

namespace {

/// How the accesses of images [height, columns, channels] are dealt to threads: the blocks along y
/// take images, the threads along x the accesses of one.
struct Cut {
  int height, columns, channels;
  std::size_t images;
  unsigned count;  ///< accesses of an image
  Divider groups, across;

  template <class T>
  static Cut of(std::size_t images, int height, int columns, int channels) {
    const int groups = channels / width<T>;
    const std::size_t count = static_cast<std::size_t>(height) * static_cast<std::size_t>(columns) *
                              static_cast<std::size_t>(groups);
    check(count < std::size_t{1} << 31, "an image is too large for the GPU's kernels");
    return {height,          columns,         channels, images, static_cast<unsigned>(count),
            Divider(groups), Divider(columns)};
  }
  /// Whole warps, but not more than a small image needs.
  dim3 block() const { return std::min((count + 31) / 32 * 32, block_threads); }
  dim3 grid() const {
    return {blocks_for(count), static_cast<unsigned>(std::clamp<std::size_t>(images, 1, 65535))};
  }
};

/// The place of a thread's values in an image: line, column, first channel.
struct Spot {
  int y, x, channel;
};

template <class T>
__device__ Spot place_of(const Cut& cut, unsigned i) {
  const unsigned pixel = cut.groups.quotient(i), y = cut.across.quotient(pixel);
  return {static_cast<int>(y), static_cast<int>(pixel - y * cut.across.divisor),
          static_cast<int>(i - pixel * cut.groups.divisor) * width<T>};
}

/// Calls body(image, place, offset of the values) for this thread's access of each image that its
/// block takes.
template <class T, class Body>
__device__ void each_image(const Cut& cut, const Body& body) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= cut.count) return;
  const Spot place = place_of<T>(cut, i);
  for (std::size_t image = blockIdx.y; image < cut.images; image += gridDim.y)
    body(image, place, (image * cut.count + i) * width<T>);
}

__device__ std::size_t offset(std::size_t image, int y, int x, int height, int columns,
                              int channels, int channel) {
  const int pixel = y * columns + x;  // below 2^31: Cut has checked it
  return image * (static_cast<std::size_t>(height) * columns * channels) +
         static_cast<std::size_t>(pixel) * channels + channel;
}

template <class T>
__global__ void max_pool_kernel(const T* x, Window w, Cut cut, T* y, std::uint8_t* index) {
  constexpr int W = width<T>;
  each_image<T>(cut, [&](std::size_t image, const Spot& p, std::size_t to) {
    const int top = p.y * w.stride - w.padding, left = p.x * w.stride - w.padding;
    const int first_y = std::max(0, -top), last_y = std::min(w.kernel, w.height - top);
    const int first_x = std::max(0, -left), last_x = std::min(w.kernel, w.width - left);
    float best[W], v[W];
    Pack<std::uint8_t, W> where{};
    for (int k = 0; k < W; ++k) best[k] = -INFINITY;
    bool first = true;
    for (int ky = first_y; ky < last_y; ++ky) {
      const T* from =
          x + offset(image, top + ky, left + first_x, w.height, w.width, w.channels, p.channel);
#pragma unroll 3
      for (int kx = first_x; kx < last_x; ++kx, from += w.channels) {
        load(from, v);
        for (int k = 0; k < W; ++k) {
          if (!first && !(v[k] > best[k] || isnan(v[k]))) continue;  // a NaN stays a NaN
          best[k] = v[k];
          where.v[k] = static_cast<std::uint8_t>(ky * w.kernel + kx);
        }
        first = false;
      }
    }
    store(y + to, best);
    *reinterpret_cast<Pack<std::uint8_t, W>*>(index + to) = where;
  });
}

template <class T>
__device__ void add_from(const T* from, std::size_t at, float (&sum)[width<T>]) {
  float v[width<T>];
  load(from + at, v);
  for (int k = 0; k < width<T>; ++k) sum[k] += v[k];
}

/// What max pooling's gradient takes from one window: the gradient of its output, and the place in
/// it that gets this, in a byte for each value.
template <class T>
struct Given {
  float g[width<T>];
  Pack<unsigned, width<T> / 4> where;

  __device__ void add_to(float (&sum)[width<T>], int place) const {
    const unsigned four = static_cast<unsigned>(place) * 0x01010101u;
#pragma unroll
    for (int k = 0; k < width<T>; ++k)
      if (((where.v[k / 4] ^ four) & (0xffu << k % 4 * 8)) == 0) sum[k] += g[k];
  }
};

template <class T>
struct Givers {
  const T *first, *second;
  const std::uint8_t* index;

  /// access: which one of the image's. A window that does not exist gives to no place.
  __device__ Given<T> at(std::size_t image, unsigned access, bool exists) const {
    constexpr int W = width<T>;
    const std::size_t at = image + std::size_t{access} * W;
    Given<T> given;
    load(first + at, given.g);
    if (second) add_from(second, at, given.g);
    given.where = *reinterpret_cast<const Pack<unsigned, W / 4>*>(index + at);
#pragma unroll
    for (unsigned& four : given.where.v)
      if (!exists) four = ~0u;
    return given;
  }
};

/// Each thread makes a tile: the stride x stride pixels at which one window begins. That window and
/// the `reach - 1` before it, along each axis, may hold them. kernel, stride: known, and then each
/// window is loaded once, all before the first is used; or 0.
template <class T, int kernel, int stride>
__global__ void __launch_bounds__(block_threads, blocks_each)
    max_pool_gradient_kernel(Givers<T> from, Window w, Cut tiles, int skipped, T* dx) {
  constexpr bool known = kernel > 0;
  constexpr int W = width<T>, reach = known ? (kernel + stride - 1) / stride : 1;
  if constexpr (known) w.kernel = kernel, w.stride = stride;
  each_image<T>(tiles, [&](std::size_t image, const Spot& tile, std::size_t) {
    const int last_y = tile.y + skipped, last_x = tile.x + skipped;
    const int top = last_y * w.stride - w.padding, left = last_x * w.stride - w.padding;
    const int groups = w.channels / W, group = tile.channel / W;
    const std::size_t outputs = offset(image, 0, 0, w.out_height, w.out_width, w.channels, 0);
    T* to = dx + offset(image, 0, 0, w.height, w.width, w.channels, 0);
    const auto given = [&](int back_y, int back_x) {
      const int y = last_y - back_y, x = last_x - back_x;
      const bool exists = y >= 0 && x >= 0 && y < w.out_height && x < w.out_width;
      const int pixel = exists ? y * w.out_width + x : 0;
      return from.at(outputs, static_cast<unsigned>(pixel * groups + group), exists);
    };
    Given<T> all[reach][reach];
    if constexpr (known)
#pragma unroll
      for (int k = 0; k < reach * reach; ++k)
        all[k / reach][k % reach] = given(k / reach, k % reach);
    const auto make = [&](int row, int column) {
      const int y = top + row, x = left + column;
      if (y < 0 || x < 0 || y >= w.height || x >= w.width) return;
      float sum[W] = {};
#pragma unroll(reach)
      for (int ky = row, back_y = 0; ky < w.kernel; ky += w.stride, ++back_y)
#pragma unroll(reach)
        for (int kx = column, back_x = 0; kx < w.kernel; kx += w.stride, ++back_x)
          if constexpr (known)
            all[back_y][back_x].add_to(sum, ky * kernel + kx);
          else
            given(back_y, back_x).add_to(sum, ky * w.kernel + kx);
      store(to + std::size_t{static_cast<unsigned>((y * w.width + x) * groups + group)} * W, sum);
    };
#pragma unroll(known ? stride : 1)
    for (int row = 0; row < w.stride; ++row)
#pragma unroll(known ? stride : 1)
      for (int column = 0; column < w.stride; ++column) make(row, column);
  });
}

/// How many of a window's pixels the image has, along one axis.
__device__ int pixels_of(int window, const Window& w, int size) {
  return std::min(w.stride, size - window * w.stride);
}

template <class T>
__global__ void mean_pool_kernel(const T* x, Window w, Cut cut, T* y) {
  each_image<T>(cut, [&](std::size_t image, const Spot& p, std::size_t to) {
    const int rows = pixels_of(p.y, w, w.height), columns = pixels_of(p.x, w, w.width);
    float sum[width<T>] = {};
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; ++column)
        add_from(x,
                 offset(image, p.y * w.stride + row, p.x * w.stride + column, w.height, w.width,
                        w.channels, p.channel),
                 sum);
    for (float& v : sum) v /= static_cast<float>(rows * columns);
    store(y + to, sum);
  });
}

template <class T>
__global__ void mean_pool_gradient_kernel(const T* first, const T* second, Window w, Cut cut,
                                          Divider stride, T* dx) {
  each_image<T>(cut, [&](std::size_t image, const Spot& p, std::size_t to) {
    const auto y = static_cast<int>(stride.quotient(static_cast<unsigned>(p.y)));
    const auto x = static_cast<int>(stride.quotient(static_cast<unsigned>(p.x)));
    const std::size_t at = offset(image, y, x, w.out_height, w.out_width, w.channels, p.channel);
    float g[width<T>] = {};
    add_from(first, at, g);
    if (second) add_from(second, at, g);
    const int pixels = pixels_of(y, w, w.height) * pixels_of(x, w, w.width);
    for (float& v : g) v /= static_cast<float>(pixels);
    store(dx + to, g);
  });
}

template <class T>
__global__ void subsample_kernel(const T* x, Window w, Cut cut, T* y) {
  each_image<T>(cut, [&](std::size_t image, const Spot& p, std::size_t to) {
    const int channel = p.channel - (cut.channels - w.channels) / 2;
    float v[width<T>] = {};
    if (channel >= 0 && channel < w.channels)
      load(
          x + offset(image, p.y * w.stride, p.x * w.stride, w.height, w.width, w.channels, channel),
          v);
    store(y + to, v);
  });
}

template <class T>
__global__ void subsample_gradient_kernel(const T* first, const T* second, Window w,
                                          int out_channels, Cut cut, Divider stride, T* dx) {
  each_image<T>(cut, [&](std::size_t image, const Spot& p, std::size_t to) {
    const auto y = static_cast<int>(stride.quotient(static_cast<unsigned>(p.y)));
    const auto x = static_cast<int>(stride.quotient(static_cast<unsigned>(p.x)));
    float g[width<T>] = {};
    if (y * w.stride == p.y && x * w.stride == p.x) {
      const std::size_t at = offset(image, y, x, w.out_height, w.out_width, out_channels,
                                    p.channel + (out_channels - w.channels) / 2);
      add_from(first, at, g);
      if (second) add_from(second, at, g);
    }
    store(dx + to, g);
  });
}

template <class T>
__global__ void average_kernel(const T* x, Cut cut, int pixels, float* mean) {
  constexpr int W = width<T>;
  each_image<T>(cut, [&](std::size_t image, const Spot& p, std::size_t to) {
    const T* from = x + image * pixels * cut.channels + p.channel;
    float sum[W] = {};
#pragma unroll 7
    for (int pixel = 0; pixel < pixels; ++pixel)
      add_from(from, static_cast<std::size_t>(pixel) * cut.channels, sum);
    for (int k = 0; k < W; ++k) mean[to + k] = sum[k] / static_cast<float>(pixels);
  });
}

template <class T>
__global__ void average_gradient_kernel(const float* dmean, Cut cut, T* dx) {
  constexpr int W = width<T>;
  const float share = 1.f / static_cast<float>(cut.columns);
  each_image<T>(cut, [&](std::size_t image, const Spot& p, std::size_t to) {
    float g[W];
    load_floats(dmean + image * cut.channels + p.channel, g);
    for (int k = 0; k < W; ++k) g[k] *= share;
    store(dx + to, g);
  });
}

}  // namespace

void max_pool(const void* x, const Window& w, Storage storage, void* y, std::uint8_t* index,
              cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const Cut cut = Cut::of<T>(w.batch, w.out_height, w.out_width, w.channels);
    launch("max_pool_kernel", max_pool_kernel<T>, cut.grid(), cut.block(), stream,
           static_cast<const T*>(x), w, cut, static_cast<T*>(y), index);
  });
}

void max_pool_gradient(const void* first, const void* second, const std::uint8_t* index,
                       const Window& w, Storage storage, void* dx, cudaStream_t stream) {
  const int skipped = w.padding / w.stride;  // tiles that have no pixel
  const auto tiles = [&](int size) { return (size - 1 + w.padding) / w.stride - skipped + 1; };
  with_type(storage, [&]<class T>(T) {
    Cut::of<T>(w.batch, w.height, w.width, w.channels);  // checks that an int counts its accesses
    const Cut cut = Cut::of<T>(w.batch, tiles(w.height), tiles(w.width), w.channels);
    // What ResNets have, or any.
    const auto kernel = w.kernel == 3 && w.stride == 2 ? max_pool_gradient_kernel<T, 3, 2>
                                                       : max_pool_gradient_kernel<T, 0, 0>;
    launch("max_pool_gradient_kernel", kernel, cut.grid(), cut.block(), stream,
           Givers<T>{static_cast<const T*>(first), static_cast<const T*>(second), index}, w, cut,
           skipped, static_cast<T*>(dx));
  });
}

void mean_pool(const void* x, const Window& w, Storage storage, void* y, cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const Cut cut = Cut::of<T>(w.batch, w.out_height, w.out_width, w.channels);
    launch("mean_pool_kernel", mean_pool_kernel<T>, cut.grid(), cut.block(), stream,
           static_cast<const T*>(x), w, cut, static_cast<T*>(y));
  });
}

void mean_pool_gradient(const void* first, const void* second, const Window& w, Storage storage,
                        void* dx, cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const Cut cut = Cut::of<T>(w.batch, w.height, w.width, w.channels);
    launch("mean_pool_gradient_kernel", mean_pool_gradient_kernel<T>, cut.grid(), cut.block(),
           stream, static_cast<const T*>(first), static_cast<const T*>(second), w, cut,
           Divider(w.stride), static_cast<T*>(dx));
  });
}

void subsample(const void* x, const Window& w, int out_channels, Storage storage, void* y,
               cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const Cut cut = Cut::of<T>(w.batch, w.out_height, w.out_width, out_channels);
    launch("subsample_kernel", subsample_kernel<T>, cut.grid(), cut.block(), stream,
           static_cast<const T*>(x), w, cut, static_cast<T*>(y));
  });
}

void subsample_gradient(const void* first, const void* second, const Window& w, int out_channels,
                        Storage storage, void* dx, cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const Cut cut = Cut::of<T>(w.batch, w.height, w.width, w.channels);
    launch("subsample_gradient_kernel", subsample_gradient_kernel<T>, cut.grid(), cut.block(),
           stream, static_cast<const T*>(first), static_cast<const T*>(second), w, out_channels,
           cut, Divider(w.stride), static_cast<T*>(dx));
  });
}

void average(const void* x, std::size_t images, int pixels, int channels, Storage storage,
             float* mean, cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const Cut cut = Cut::of<T>(images, 1, 1, channels);
    launch("average_kernel", average_kernel<T>, cut.grid(), cut.block(), stream,
           static_cast<const T*>(x), cut, pixels, mean);
  });
}

void average_gradient(const float* dmean, std::size_t images, int pixels, int channels,
                      Storage storage, void* dx, cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const Cut cut = Cut::of<T>(images, 1, pixels, channels);
    launch("average_gradient_kernel", average_gradient_kernel<T>, cut.grid(), cut.block(), stream,
           dmean, cut, static_cast<T*>(dx));
  });
}

}  // namespace lockstep::cuda
