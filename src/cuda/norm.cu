#include <type_traits>

#include "cuda/columns.cuh"

// Batch norm, ReLU and the sum of a residual block. Statistics and gradients are summed in two
// levels: blocks sum rows in fp32 about a pivot and leave one line of sums each; a second kernel
// adds those lines in double, in order.
namespace lockstep::cuda {

namespace {

// Fills an H200 (132 processors) four times over, and bounds what the second level reads.
constexpr unsigned most_sum_blocks = 528;

template <class T>
Columns sum_columns(const Matrix& shape) {
  return columns(shape, width<T>, 16, most_sum_blocks);
}

template <class T>
Columns point_columns(const Matrix& shape) {
  return columns(shape, width<T>, 4, 1u << 20);
}

/// One line of sums: [2, channels].
template <int W>
__device__ void store_sums(const Matrix& shape, int channel, float (&sums)[2 * W], float* scratch) {
  __shared__ float shared[2 * W * block_threads];
  sum_rows(sums, shared);
  if (threadIdx.y != 0 || channel >= shape.channels) return;
  float* line = scratch + static_cast<std::size_t>(blockIdx.x) * 2 * shape.channels + channel;
#pragma unroll
  for (int k = 0; k < W; ++k) {
    line[k] = sums[k];
    line[shape.channels + k] = sums[W + k];
  }
}

// The first row is as good a pivot as any value of the channel: within a few deviations of the
// mean, so nothing is lost where the mean is large.
template <class T>
__global__ void __launch_bounds__(block_threads)
    statistics_kernel(const T* x, Matrix shape, float* scratch) {
  constexpr int W = width<T>;
  const int channel = first_channel(W);
  float sums[2 * W] = {};
  if (channel < shape.channels) {
    float pivot[W], v[W];
    load(x + channel, pivot);
    each_row(shape, channel, [&](std::size_t at) {
      load(x + at, v);
#pragma unroll
      for (int k = 0; k < W; ++k) {
        const float d = v[k] - pivot[k];
        sums[k] += d;
        sums[W + k] += d * d;
      }
    });
  }
  store_sums<W>(shape, channel, sums, scratch);
}

constexpr unsigned finish_lanes = 32;

/// Adds the lines for one channel; the threads of row 0 get the two sums. Blocks of (32,
/// finish_lanes) threads, a thread's channel first in x.
__device__ void add_lines(const float* scratch, unsigned lines, int channels, int channel,
                          double (&sums)[2]) {
  __shared__ double shared[2][finish_lanes][32];
  double a = 0, b = 0;
  if (channel < channels) {
    for (unsigned l = threadIdx.y; l < lines; l += finish_lanes) {
      const float* line = scratch + static_cast<std::size_t>(l) * 2 * channels + channel;
      a += static_cast<double>(line[0]);
      b += static_cast<double>(line[channels]);
    }
  }
  shared[0][threadIdx.y][threadIdx.x] = a;
  shared[1][threadIdx.y][threadIdx.x] = b;
  __syncthreads();
  if (threadIdx.y != 0) return;
  sums[0] = sums[1] = 0;
  for (unsigned l = 0; l < finish_lanes; ++l) {
    sums[0] += shared[0][l][threadIdx.x];
    sums[1] += shared[1][l][threadIdx.x];
  }
}

__device__ void set_channel(const NormChannels& to, int c, const arithmetic::NormChannel& n) {
  to.mean[c] = n.mean;
  to.inverse_deviation[c] = n.inverse_deviation;
  to.scale[c] = n.scale;
  to.shift[c] = n.shift;
  to.half_scale[c] = __float2half_rn(n.scale);
  to.half_shift[c] = __float2half_rn(n.shift);
}

/// From the moments of one channel's batch.
__device__ void set_batch_channel(const NormChannels& to, int c, const arithmetic::Moments& m,
                                  const NormParameters& p) {
  to.variance[c] = static_cast<float>(m.variance);
  set_channel(to, c,
              arithmetic::norm_channel(m.mean, m.variance, p.gamma[c], p.beta[c], p.epsilon));
}

template <class T>
__global__ void __launch_bounds__(32 * finish_lanes)
    finish_statistics_kernel(const T* x, Matrix shape, NormParameters p, NormChannels n,
                             const float* scratch, unsigned lines) {
  const int c = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  double sums[2];
  add_lines(scratch, lines, shape.channels, c, sums);
  if (threadIdx.y != 0 || c >= shape.channels) return;
  const auto m =
      arithmetic::moments(sums[0], sums[1], static_cast<double>(shape.rows), to_float(x[c]));
  set_batch_channel(n, c, m, p);
}

__global__ void statistics_of_sums_kernel(const float* sums, Matrix shape, NormParameters p,
                                          NormChannels n) {
  const int c = static_cast<int>(thread_index());
  if (c >= shape.channels) return;
  set_batch_channel(
      n, c,
      arithmetic::moments(sums[c], sums[shape.channels + c], static_cast<double>(shape.rows), 0),
      p);
}

__global__ void running_kernel(int channels, NormParameters p, NormChannels n) {
  const int c = static_cast<int>(thread_index());
  if (c >= channels) return;
  set_channel(n, c,
              arithmetic::norm_channel(p.running_mean[c], p.running_var[c], p.gamma[c], p.beta[c],
                                       p.epsilon));
}

// A NaN is not smaller than 0, so it stays.
__device__ float relu(float v) { return v < 0 ? 0.f : v; }

template <class T, bool with_skip>
__global__ void __launch_bounds__(block_threads)
    apply_kernel(NormApply op, Matrix shape, NormChannels n) {
  constexpr int W = width<T>;
  const int channel = first_channel(W);
  if (channel >= shape.channels) return;
  const T* x = static_cast<const T*>(op.x);
  const T* skip = static_cast<const T*>(op.skip);
  T* y = static_cast<T*>(op.y);
  float scale[W], shift[W], v[W], s[W];
#pragma unroll
  for (int k = 0; k < W; ++k) {
    scale[k] = n.scale[channel + k];
    shift[k] = n.shift[channel + k];
  }
  each_row(shape, channel, [&](std::size_t at) {
    load(x + at, v);
    if constexpr (with_skip) load(skip + at, s);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      v[k] = v[k] * scale[k] + shift[k];
      if constexpr (with_skip) v[k] += s[k];
      if (op.relu) v[k] = relu(v[k]);
    }
    store(y + at, v);
  });
}

/// The gradient behind the ReLU of one access's values.
template <class T, Mask mask, bool two>
struct Gradient {
  static constexpr int W = width<T>;
  const T *first, *second, *y;
  float scale[W], shift[W];

  __device__ Gradient(const NormBackward& op, const NormChannels& n, int channel)
      : first(static_cast<const T*>(op.first)),
        second(static_cast<const T*>(op.second)),
        y(static_cast<const T*>(op.y)) {
    if constexpr (mask == Mask::from_x) {
#pragma unroll
      for (int k = 0; k < W; ++k) {
        scale[k] = n.scale[channel + k];
        shift[k] = n.shift[channel + k];
      }
    }
  }
  __device__ void at(std::size_t i, const float (&x)[W], float (&g)[W]) const {
    load(first + i, g);
    if constexpr (two) {
      float more[W];
      load(second + i, more);
#pragma unroll
      for (int k = 0; k < W; ++k) g[k] += more[k];
    }
    if constexpr (mask != Mask::none) {
      float out[W];
      if constexpr (mask == Mask::from_y) load(y + i, out);
#pragma unroll
      for (int k = 0; k < W; ++k) {
        if constexpr (mask == Mask::from_x) out[k] = x[k] * scale[k] + shift[k];
        g[k] = out[k] > 0 ? g[k] : 0.f;
      }
    }
  }
};

template <class T, Mask mask, bool two>
__global__ void __launch_bounds__(block_threads)
    gradient_sums_kernel(NormBackward op, Matrix shape, NormChannels n, float* scratch) {
  constexpr int W = width<T>;
  const int channel = first_channel(W);
  float sums[2 * W] = {};
  if (channel < shape.channels) {
    const T* x = static_cast<const T*>(op.x);
    T* kept = static_cast<T*>(op.g);
    const Gradient<T, mask, two> gradient(op, n, channel);
    float mean[W], v[W], g[W];
#pragma unroll
    for (int k = 0; k < W; ++k) mean[k] = n.mean[channel + k];
    each_row(shape, channel, [&](std::size_t at) {
      load(x + at, v);
      gradient.at(at, v, g);
      if (kept) store(kept + at, g);
#pragma unroll
      for (int k = 0; k < W; ++k) {
        sums[k] += g[k];
        sums[W + k] += g[k] * (v[k] - mean[k]);
      }
    });
  }
  store_sums<W>(shape, channel, sums, scratch);
}

/// From the sums of g and of g * (x - mean) over one channel.
__device__ void set_gradients(int c, double sum_g, double sum_gx, double count,
                              const NormParameters& p, const NormChannels& n, bool accumulate,
                              const DeviceScalars* scalars) {
  const auto g =
      arithmetic::norm_gradient(sum_g, sum_gx, count, n.scale[c], n.inverse_deviation[c]);
  n.a[c] = g.a;
  n.b[c] = g.b;
  n.c[c] = g.c;
  p.dgamma[c] = accumulate ? p.dgamma[c] + g.dgamma : g.dgamma;
  p.dbeta[c] = accumulate ? p.dbeta[c] + g.dbeta : g.dbeta;
  const float share = scalars->step.statistics_share;
  p.mean_share[c] =
      arithmetic::kept_statistic(accumulate, p.mean_share[c], share, p.momentum, n.mean[c]);
  p.var_share[c] = arithmetic::kept_statistic(accumulate, p.var_share[c], share, p.momentum,
                                              arithmetic::unbiased(n.variance[c], count));
}

__global__ void __launch_bounds__(32 * finish_lanes)
    finish_gradients_kernel(Matrix shape, NormParameters p, NormChannels n, bool accumulate,
                            const DeviceScalars* scalars, const float* scratch, unsigned lines) {
  const int c = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  double sums[2];
  add_lines(scratch, lines, shape.channels, c, sums);
  if (threadIdx.y != 0 || c >= shape.channels) return;
  set_gradients(c, sums[0], sums[1], static_cast<double>(shape.rows), p, n, accumulate, scalars);
}

__global__ void gradients_of_sums_kernel(const float* sums, Matrix shape, NormParameters p,
                                         NormChannels n, bool accumulate,
                                         const DeviceScalars* scalars) {
  const int c = static_cast<int>(thread_index());
  if (c >= shape.channels) return;
  const double dgamma = sums[c], dbeta = sums[shape.channels + c];
  set_gradients(c, dbeta, dgamma / static_cast<double>(n.inverse_deviation[c]),
                static_cast<double>(shape.rows), p, n, accumulate, scalars);
}

template <class T, Mask mask, bool two>
__global__ void __launch_bounds__(block_threads)
    input_gradient_kernel(NormBackward op, Matrix shape, NormChannels n, T* dx) {
  constexpr int W = width<T>;
  const int channel = first_channel(W);
  if (channel >= shape.channels) return;
  const T* x = static_cast<const T*>(op.x);
  const Gradient<T, mask, two> gradient(op, n, channel);
  float mean[W], a[W], b[W], c[W], v[W], g[W];
#pragma unroll
  for (int k = 0; k < W; ++k) {
    mean[k] = n.mean[channel + k];
    a[k] = n.a[channel + k];
    b[k] = n.b[channel + k];
    c[k] = n.c[channel + k];
  }
  each_row(shape, channel, [&](std::size_t at) {
    load(x + at, v);
    gradient.at(at, v, g);
#pragma unroll
    for (int k = 0; k < W; ++k) v[k] = g[k] * a[k] + ((v[k] - mean[k]) * b[k] + c[k]);
    store(dx + at, v);
  });
}

template <Mask mask>
struct MaskOf {};

/// Calls body(T{}, MaskOf<mask>{}, two as a type) for what the operation asks for.
template <class Body>
void with_gradient(const NormBackward& op, Storage storage, const Body& body) {
  with_type(storage, [&]<class T>(T type) {
    const auto with_two = [&]<Mask mask>(MaskOf<mask> its) {
      op.second ? body(type, its, std::true_type{}) : body(type, its, std::false_type{});
    };
    switch (op.mask) {
      case Mask::none:
        return with_two(MaskOf<Mask::none>{});
      case Mask::from_x:
        return with_two(MaskOf<Mask::from_x>{});
      case Mask::from_y:
        return with_two(MaskOf<Mask::from_y>{});
    }
  });
}

dim3 finish_grid(const Matrix& shape) {
  return dim3(static_cast<unsigned>(shape.channels + 31) / 32);
}
dim3 finish_block() { return dim3(32, finish_lanes); }

}  // namespace

NormChannels norm_channels(float* memory, int channels) {
  const auto array = [&](int i) { return memory + static_cast<std::ptrdiff_t>(i) * channels; };
  __half* halves = reinterpret_cast<__half*>(array(8));
  return {array(0), array(1), array(2), array(3), array(4),
          array(5), array(6), array(7), halves,   halves + channels};
}

std::size_t norm_scratch(const Matrix& shape, Storage storage) {
  std::size_t lines = 0;
  with_type(storage, [&]<class T>(T) { lines = sum_columns<T>(shape).grid.x; });
  return lines * 2 * static_cast<std::size_t>(shape.channels) * sizeof(float);
}

void norm_statistics(const void* x, const Matrix& shape, Storage storage,
                     const NormParameters& parameters, const NormChannels& channels, float* scratch,
                     cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const T* values = static_cast<const T*>(x);
    const Columns cut = sum_columns<T>(shape);
    launch("statistics_kernel", statistics_kernel<T>, cut.grid, cut.block, stream, values, shape,
           scratch);
    launch("finish_statistics_kernel", finish_statistics_kernel<T>, finish_grid(shape),
           finish_block(), stream, values, shape, parameters, channels, scratch, cut.grid.x);
  });
}

void norm_statistics_of_sums(const float* sums, const Matrix& shape,
                             const NormParameters& parameters, const NormChannels& channels,
                             cudaStream_t stream) {
  launch("statistics_of_sums_kernel", statistics_of_sums_kernel,
         blocks_for(static_cast<std::size_t>(shape.channels)), block_threads, stream, sums, shape,
         parameters, channels);
}

void norm_running(const Matrix& shape, const NormParameters& parameters,
                  const NormChannels& channels, cudaStream_t stream) {
  launch("running_kernel", running_kernel, blocks_for(static_cast<std::size_t>(shape.channels)),
         block_threads, stream, shape.channels, parameters, channels);
}

void norm_apply(const NormApply& op, const Matrix& shape, Storage storage,
                const NormChannels& channels, cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const Columns cut = point_columns<T>(shape);
    if (op.skip)
      launch("apply_kernel", apply_kernel<T, true>, cut.grid, cut.block, stream, op, shape,
             channels);
    else
      launch("apply_kernel", apply_kernel<T, false>, cut.grid, cut.block, stream, op, shape,
             channels);
  });
}

void norm_gradients(const NormBackward& op, const Matrix& shape, Storage storage,
                    const NormParameters& parameters, const NormChannels& channels, bool accumulate,
                    const DeviceScalars* scalars, float* scratch, cudaStream_t stream) {
  unsigned lines = 0;
  with_gradient(op, storage, [&]<class T, Mask mask, class Two>(T, MaskOf<mask>, Two) {
    const Columns cut = sum_columns<T>(shape);
    lines = cut.grid.x;
    launch("gradient_sums_kernel", gradient_sums_kernel<T, mask, Two::value>, cut.grid, cut.block,
           stream, op, shape, channels, scratch);
  });
  launch("finish_gradients_kernel", finish_gradients_kernel, finish_grid(shape), finish_block(),
         stream, shape, parameters, channels, accumulate, scalars, scratch, lines);
}

void norm_gradients_of_sums(const float* sums, const Matrix& shape,
                            const NormParameters& parameters, const NormChannels& channels,
                            bool accumulate, const DeviceScalars* scalars, cudaStream_t stream) {
  launch("gradients_of_sums_kernel", gradients_of_sums_kernel,
         blocks_for(static_cast<std::size_t>(shape.channels)), block_threads, stream, sums, shape,
         parameters, channels, accumulate, scalars);
}

void norm_input_gradient(const NormBackward& op, const Matrix& shape, Storage storage,
                         const NormChannels& channels, void* dx, cudaStream_t stream) {
  NormBackward from = op;
  if (op.g) {  // what the ReLU let through is at hand
    from.first = op.g;
    from.second = nullptr;
    from.mask = Mask::none;
  }
  with_gradient(from, storage, [&]<class T, Mask mask, class Two>(T, MaskOf<mask>, Two) {
    const Columns cut = point_columns<T>(shape);
    launch("input_gradient_kernel", input_gradient_kernel<T, mask, Two::value>, cut.grid, cut.block,
           stream, from, shape, channels, static_cast<T*>(dx));
  });
}

}  // namespace lockstep::cuda
