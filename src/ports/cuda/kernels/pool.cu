#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "ports/cuda/kernels/divider.cuh"
#include "ports/cuda/kernels/vector.cuh"

// Each thread writes one 16-byte access of the output. It gathers instead of scattering, so it
// needs no atomics and gives the same bits each time.
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
  wait_for_previous_kernel();
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

/// The outputs along one axis whose windows hold an input, the last one first.
struct Lines {
  int first, last;
};
__device__ Lines outputs_of(int input, const Window& w, int outputs, const Divider& stride) {
  const int end = input + w.padding;  // minus the place in the window: output * stride
  const int begin = std::max(0, end - w.kernel + 1) + w.stride - 1;
  return {std::min(static_cast<int>(stride.quotient(static_cast<unsigned>(end))), outputs - 1),
          static_cast<int>(stride.quotient(static_cast<unsigned>(begin)))};
}

template <class T>
__global__ void max_pool_gradient_kernel(const T* first, const T* second, const std::uint8_t* index,
                                         Window w, Cut cut, Divider stride, T* dx) {
  wait_for_previous_kernel();
  constexpr int W = width<T>;
  each_image<T>(cut, [&](std::size_t image, const Spot& p, std::size_t to) {
    const Lines lines = outputs_of(p.y, w, w.out_height, stride);
    const Lines columns = outputs_of(p.x, w, w.out_width, stride);
    float sum[W] = {};
    for (int y = lines.first; y >= lines.last; --y) {
      const int ky = p.y + w.padding - y * w.stride;
#pragma unroll 2
      for (int x = columns.first; x >= columns.last; --x) {
        const int kx = p.x + w.padding - x * w.stride;
        const std::size_t at =
            offset(image, y, x, w.out_height, w.out_width, w.channels, p.channel);
        float g[W] = {};
        add_from(first, at, g);
        if (second) add_from(second, at, g);
        const auto where = access<W>(index + at);
        for (int k = 0; k < W; ++k)
          if (where.v[k] == ky * w.kernel + kx) sum[k] += g[k];
      }
    }
    store(dx + to, sum);
  });
}

template <class T>
__global__ void subsample_kernel(const T* x, Window w, Cut cut, T* y) {
  wait_for_previous_kernel();
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
  wait_for_previous_kernel();
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
  wait_for_previous_kernel();
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
  wait_for_previous_kernel();
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
  with_type(storage, [&]<class T>(T) {
    const Cut cut = Cut::of<T>(w.batch, w.height, w.width, w.channels);
    launch("max_pool_gradient_kernel", max_pool_gradient_kernel<T>, cut.grid(), cut.block(), stream,
           static_cast<const T*>(first), static_cast<const T*>(second), index, w, cut,
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
