#include <cmath>

#include "ports/cuda/kernels/vector.cuh"

// Each thread writes one 16-byte access of the output. It gathers instead of scattering, so it
// needs no atomics and gives the same bits each time.
namespace lockstep::cuda {

namespace {

/// The place of a thread's values: image, line, column, first channel.
struct Place {
  int image, y, x, channel;
};

template <class T>
__device__ Place place_of(std::size_t i, int height, int columns, int channels) {
  const int groups = channels / width<T>;
  Place p{};
  p.channel = static_cast<int>(i % groups) * width<T>;
  i /= groups;
  p.x = static_cast<int>(i % columns);
  i /= columns;
  p.y = static_cast<int>(i % height);
  p.image = static_cast<int>(i / height);
  return p;
}

__device__ std::size_t offset(int image, int y, int x, int height, int columns, int channels,
                              int channel) {
  return ((static_cast<std::size_t>(image) * height + y) * columns + x) * channels + channel;
}

/// The number of accesses in a tensor.
template <class T>
std::size_t accesses(std::size_t images, int height, int columns, int channels) {
  return images * static_cast<std::size_t>(height) * static_cast<std::size_t>(columns) *
         static_cast<std::size_t>(channels / width<T>);
}

template <class T>
__global__ void max_pool_kernel(const T* x, Window w, std::size_t count, T* y,
                                std::uint8_t* index) {
  constexpr int W = width<T>;
  const std::size_t i = thread_index();
  if (i >= count) return;
  const Place p = place_of<T>(i, w.out_height, w.out_width, w.channels);
  float best[W], v[W];
  Pack<std::uint8_t, W> where{};
  for (int k = 0; k < W; ++k) best[k] = -INFINITY;
  bool first = true;
  for (int ky = 0; ky < w.kernel; ++ky) {
    const int in_y = p.y * w.stride - w.padding + ky;
    if (in_y < 0 || in_y >= w.height) continue;
    for (int kx = 0; kx < w.kernel; ++kx) {
      const int in_x = p.x * w.stride - w.padding + kx;
      if (in_x < 0 || in_x >= w.width) continue;
      load(x + offset(p.image, in_y, in_x, w.height, w.width, w.channels, p.channel), v);
      for (int k = 0; k < W; ++k) {
        if (!first && !(v[k] > best[k] || isnan(v[k]))) continue;  // a NaN stays a NaN
        best[k] = v[k];
        where.v[k] = static_cast<std::uint8_t>(ky * w.kernel + kx);
      }
      first = false;
    }
  }
  store(y + i * W, best);
  *reinterpret_cast<Pack<std::uint8_t, W>*>(index + i * W) = where;
}

template <class T>
__device__ void add_from(const T* from, std::size_t at, float (&sum)[width<T>]) {
  float v[width<T>];
  load(from + at, v);
  for (int k = 0; k < width<T>; ++k) sum[k] += v[k];
}

template <class T>
__global__ void max_pool_gradient_kernel(const T* first, const T* second, const std::uint8_t* index,
                                         Window w, std::size_t count, T* dx) {
  constexpr int W = width<T>;
  const std::size_t i = thread_index();
  if (i >= count) return;
  const Place p = place_of<T>(i, w.height, w.width, w.channels);
  float sum[W] = {};
  for (int ky = 0; ky < w.kernel; ++ky) {
    const int down = p.y + w.padding - ky;  // out_y * stride
    if (down < 0 || down % w.stride != 0 || down / w.stride >= w.out_height) continue;
    for (int kx = 0; kx < w.kernel; ++kx) {
      const int right = p.x + w.padding - kx;
      if (right < 0 || right % w.stride != 0 || right / w.stride >= w.out_width) continue;
      const std::size_t at = offset(p.image, down / w.stride, right / w.stride, w.out_height,
                                    w.out_width, w.channels, p.channel);
      float g[W] = {};
      add_from(first, at, g);
      if (second) add_from(second, at, g);
      const auto where = *reinterpret_cast<const Pack<std::uint8_t, W>*>(index + at);
      for (int k = 0; k < W; ++k)
        if (where.v[k] == ky * w.kernel + kx) sum[k] += g[k];
    }
  }
  store(dx + i * W, sum);
}

template <class T>
__global__ void subsample_kernel(const T* x, Window w, int out_channels, std::size_t count, T* y) {
  const std::size_t i = thread_index();
  if (i >= count) return;
  const Place p = place_of<T>(i, w.out_height, w.out_width, out_channels);
  const int channel = p.channel - (out_channels - w.channels) / 2;
  float v[width<T>] = {};
  if (channel >= 0 && channel < w.channels)
    load(
        x + offset(p.image, p.y * w.stride, p.x * w.stride, w.height, w.width, w.channels, channel),
        v);
  store(y + i * width<T>, v);
}

template <class T>
__global__ void subsample_gradient_kernel(const T* first, const T* second, Window w,
                                          int out_channels, std::size_t count, T* dx) {
  const std::size_t i = thread_index();
  if (i >= count) return;
  const Place p = place_of<T>(i, w.height, w.width, w.channels);
  float g[width<T>] = {};
  if (p.y % w.stride == 0 && p.x % w.stride == 0) {
    const std::size_t at =
        offset(p.image, p.y / w.stride, p.x / w.stride, w.out_height, w.out_width, out_channels,
               p.channel + (out_channels - w.channels) / 2);
    add_from(first, at, g);
    if (second) add_from(second, at, g);
  }
  store(dx + i * width<T>, g);
}

template <class T>
__global__ void average_kernel(const T* x, std::size_t count, int pixels, int channels,
                               float* mean) {
  constexpr int W = width<T>;
  const std::size_t i = thread_index();
  if (i >= count) return;
  const std::size_t groups = channels / W, image = i / groups;
  const std::size_t channel = i % groups * W;
  float sum[W] = {};
  for (int p = 0; p < pixels; ++p) add_from(x, (image * pixels + p) * channels + channel, sum);
  for (int k = 0; k < W; ++k)
    mean[image * channels + channel + k] = sum[k] / static_cast<float>(pixels);
}

template <class T>
__global__ void average_gradient_kernel(const float* dmean, std::size_t count, int pixels,
                                        int channels, T* dx) {
  constexpr int W = width<T>;
  const std::size_t i = thread_index();
  if (i >= count) return;
  const std::size_t groups = channels / W, channel = i % groups * W;
  const std::size_t image = i / groups / pixels;
  const float share = 1.f / static_cast<float>(pixels);
  float g[W];
  for (int k = 0; k < W; ++k) g[k] = dmean[image * channels + channel + k] * share;
  store(dx + i * W, g);
}

}  // namespace

void max_pool(const void* x, const Window& w, Storage storage, void* y, std::uint8_t* index,
              cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const std::size_t count = accesses<T>(w.batch, w.out_height, w.out_width, w.channels);
    launch("max_pool_kernel", max_pool_kernel<T>, blocks_for(count), block_threads, stream,
           static_cast<const T*>(x), w, count, static_cast<T*>(y), index);
  });
}

void max_pool_gradient(const void* first, const void* second, const std::uint8_t* index,
                       const Window& w, Storage storage, void* dx, cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const std::size_t count = accesses<T>(w.batch, w.height, w.width, w.channels);
    launch("max_pool_gradient_kernel", max_pool_gradient_kernel<T>, blocks_for(count),
           block_threads, stream, static_cast<const T*>(first), static_cast<const T*>(second),
           index, w, count, static_cast<T*>(dx));
  });
}

void subsample(const void* x, const Window& w, int out_channels, Storage storage, void* y,
               cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const std::size_t count = accesses<T>(w.batch, w.out_height, w.out_width, out_channels);
    launch("subsample_kernel", subsample_kernel<T>, blocks_for(count), block_threads, stream,
           static_cast<const T*>(x), w, out_channels, count, static_cast<T*>(y));
  });
}

void subsample_gradient(const void* first, const void* second, const Window& w, int out_channels,
                        Storage storage, void* dx, cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const std::size_t count = accesses<T>(w.batch, w.height, w.width, w.channels);
    launch("subsample_gradient_kernel", subsample_gradient_kernel<T>, blocks_for(count),
           block_threads, stream, static_cast<const T*>(first), static_cast<const T*>(second), w,
           out_channels, count, static_cast<T*>(dx));
  });
}

void average(const void* x, std::size_t images, int pixels, int channels, Storage storage,
             float* mean, cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const std::size_t count = accesses<T>(images, 1, 1, channels);
    launch("average_kernel", average_kernel<T>, blocks_for(count), block_threads, stream,
           static_cast<const T*>(x), count, pixels, channels, mean);
  });
}

void average_gradient(const float* dmean, std::size_t images, int pixels, int channels,
                      Storage storage, void* dx, cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const std::size_t count = accesses<T>(images, 1, pixels, channels);
    launch("average_gradient_kernel", average_gradient_kernel<T>, blocks_for(count), block_threads,
           stream, dmean, count, pixels, channels, static_cast<T*>(dx));
  });
}

}  // namespace lockstep::cuda
