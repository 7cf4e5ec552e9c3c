#include "ports/cuda/kernels/norm_sums.cuh"

// Batch norm forward, with the sum of a residual block and the ReLU.
namespace lockstep::cuda {

namespace {

__device__ void set_channel(const NormChannels& to, int c,
                            const backend::arithmetic::NormChannel& n) {
  to.mean[c] = n.mean;
  to.inverse_deviation[c] = n.inverse_deviation;
  to.scale[c] = n.scale;
  to.shift[c] = n.shift;
  to.half_scale[c] = __float2half_rn(n.scale);
  to.half_shift[c] = __float2half_rn(n.shift);
}

using backend::arithmetic::SampleMoments;

/// Sets one channel's numbers from the moments of its batch.
__device__ void set_batch_channel(const NormChannels& to, int c,
                                  const backend::arithmetic::Moments& m, const NormParameters& p) {
  to.variance[c] = static_cast<float>(m.variance);
  set_channel(
      to, c,
      backend::arithmetic::norm_channel(m.mean, m.variance, p.gamma[c], p.beta[c], p.epsilon));
}

/// The same, or tells them to the ranks that share them.
__device__ void give_channel(const NormChannels& to, int c, const backend::arithmetic::Moments& m,
                             const NormParameters& p, const Matrix& shape) {
  if (!p.chunks.all) return set_batch_channel(to, c, m, p);
  own_chunk(p.chunks, shape.channels)
      .set(c, p.chunks.rows, m.mean, m.variance * static_cast<double>(shape.rows));
}

// Any value of the channel is a good pivot, so take the last row, where the walk begins: it is
// within a few deviations of the mean, so no precision is lost where the mean is large.
template <class T>
__global__ void __launch_bounds__(block_threads, blocks_each)
    statistics_kernel(const T* x, Matrix shape, NormParameters p, NormChannels n, SumScratch to) {
  constexpr int W = sum_width;
  const int channel = first_channel(W);
  const T* last = x + (shape.rows - 1) * static_cast<std::size_t>(shape.channels);
  float sums[2 * W] = {};
  if (channel < shape.channels) {
    float pivot[W];
    load(last + channel, pivot);
    each_row<64 / (W * sizeof(T))>(
        shape, channel, walk_of_grid(shape, true),
        [&](std::size_t at) { return access<W>(x + at); },
        [&](std::size_t, const Pack<T, W>& row) {
          float v[W];
          unpack(row, v);
#pragma unroll
          for (int k = 0; k < W; ++k) {
            const float d = v[k] - pivot[k];
            sums[k] += d;
            sums[W + k] += d * d;
          }
        });
  }
  sum_blocks(shape, channel, sums, to, [&](int c, double sum, double squares) {
    const auto count = static_cast<double>(shape.rows);
    give_channel(n, c, backend::arithmetic::moments(sum, squares, count, to_float(last[c])), p,
                 shape);
  });
}

__global__ void statistics_of_sums_kernel(const float* sums, Matrix shape, NormParameters p,
                                          NormChannels n) {
  const int c = static_cast<int>(thread_index());
  if (c >= shape.channels) return;
  give_channel(n, c,
               backend::arithmetic::moments(sums[c], sums[shape.channels + c],
                                            static_cast<double>(shape.rows), 0),
               p, shape);
}

/// In the order of the ranks, so that all of them get the same bits.
__global__ void statistics_of_ranks_kernel(Matrix shape, NormParameters p, NormChannels n) {
  const int c = static_cast<int>(thread_index());
  if (c >= shape.channels) return;
  const double pixels = pixels_of(p.chunks, shape);
  SampleMoments all;
  for (std::size_t rank = 0; rank < p.chunks.ranks; ++rank) {
    const NormChunk its = chunk_of(p.chunks, rank, shape.channels);
    all = merged(all, {its.rows() * pixels, its.first(c), its.second(c)});
  }
  set_batch_channel(n, c, {all.mean, all.variance()}, p);
}

__global__ void running_kernel(int channels, NormParameters p, NormChannels n) {
  const int c = static_cast<int>(thread_index());
  if (c >= channels) return;
  set_channel(n, c,
              backend::arithmetic::norm_channel(p.running_mean[c], p.running_var[c], p.gamma[c],
                                                p.beta[c], p.epsilon));
}

// A NaN is not smaller than 0, so it stays.
__device__ float relu(float v) { return v < 0 ? 0.f : v; }

/// A bit for each value: 1 where it is positive.
template <class T, int N>
__device__ std::uint8_t positive(const Pack<T, N>& values) {
  float v[N];
  unpack(values, v);
  unsigned bits = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) bits |= (v[k] > 0 ? 1u : 0u) << k;
  return static_cast<std::uint8_t>(bits);
}

enum class Skip { none, value, normalised };

template <class T, Skip skips>
__global__ void __launch_bounds__(block_threads, blocks_each)
    apply_kernel(NormApply op, Matrix shape, NormChannels n, unsigned rows) {
  constexpr int W = width<T>;
  constexpr bool with_skip = skips != Skip::none;
  const int channel = first_channel(W);
  if (channel >= shape.channels) return;
  const T* x = static_cast<const T*>(op.x);
  const T* skip = static_cast<const T*>(op.skip);
  T* y = static_cast<T*>(op.y);
  float scale[W], shift[W], skip_scale[W];
  load_floats(n.scale + channel, scale);
  load_floats(n.shift + channel, shift);
  if constexpr (skips == Skip::normalised) {
    float skip_shift[W];
    load_floats(op.skip_scale + channel, skip_scale);
    load_floats(op.skip_shift + channel, skip_shift);
#pragma unroll
    for (int k = 0; k < W; ++k) shift[k] += skip_shift[k];
  }
  struct Row {
    Pack<T, W> x, skip;
  };
  each_row<with_skip ? 2 : 4>(
      shape, channel, walk_of_block(shape, rows, op.down),
      [&](std::size_t at) {
        Row row{access<W>(x + at), {}};
        if constexpr (with_skip) row.skip = access<W>(skip + at);
        return row;
      },
      [&](std::size_t at, const Row& row) {
        float v[W], s[W];
        unpack(row.x, v);
        if constexpr (with_skip) unpack(row.skip, s);
#pragma unroll
        for (int k = 0; k < W; ++k) {
          v[k] = v[k] * scale[k] + shift[k];
          if constexpr (skips == Skip::value) v[k] += s[k];
          if constexpr (skips == Skip::normalised) v[k] += s[k] * skip_scale[k];
          if (op.relu) v[k] = relu(v[k]);
        }
        const Pack<T, W> stored = store(y + at, v);
        if constexpr (with_skip)
          if (op.bits) op.bits[at / W] = positive(stored);
      });
}

}  // namespace

NormChannels norm_channels(float* memory, int channels) {
  const auto array = [&](int i) { return memory + static_cast<std::ptrdiff_t>(i) * channels; };
  __half* halves = reinterpret_cast<__half*>(array(8));
  return {array(0), array(1), array(2), array(3), array(4),
          array(5), array(6), array(7), halves,   halves + channels};
}

std::size_t mask_bytes(const Matrix& shape, Storage storage) {
  return shape.count() * bytes_of(storage) / 16;
}

std::size_t norm_scratch(const Matrix& shape) {
  const auto sums = 2 * static_cast<std::size_t>(shape.channels);
  return sums * (sum_lanes * sizeof(double) + sum_columns(shape).grid.x * sizeof(float));
}

std::size_t norm_tickets(const Matrix& shape) {
  return std::size_t{sum_columns(shape).grid.y} * column_tickets;
}

void norm_statistics(const void* x, const Matrix& shape, Storage storage,
                     const NormParameters& parameters, const NormChannels& channels,
                     const SumScratch& scratch, cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    const Columns cut = sum_columns(shape);
    launch("statistics_kernel", statistics_kernel<T>, cut.grid, cut.block, stream,
           static_cast<const T*>(x), shape, parameters, channels, scratch);
  });
}

void norm_statistics_of_sums(const float* sums, const Matrix& shape,
                             const NormParameters& parameters, const NormChannels& channels,
                             cudaStream_t stream) {
  launch("statistics_of_sums_kernel", statistics_of_sums_kernel,
         blocks_for(static_cast<std::size_t>(shape.channels)), block_threads, stream, sums, shape,
         parameters, channels);
}

void norm_statistics_of_ranks(const Matrix& shape, const NormParameters& parameters,
                              const NormChannels& channels, cudaStream_t stream) {
  launch("statistics_of_ranks_kernel", statistics_of_ranks_kernel,
         blocks_for(static_cast<std::size_t>(shape.channels)), block_threads, stream, shape,
         parameters, channels);
}

void norm_nothing(const NormChunks& chunks, int channels, cudaStream_t stream) {
  const std::size_t floats = NormChunks::floats(channels);
  check_cuda(cudaMemsetAsync(chunks.all + chunks.rank * floats, 0, floats * sizeof(float), stream),
             "cudaMemsetAsync");
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
    const auto kernel = !op.skip        ? apply_kernel<T, Skip::none>
                        : op.skip_scale ? apply_kernel<T, Skip::normalised>
                                        : apply_kernel<T, Skip::value>;
    launch("apply_kernel", kernel, cut.grid, cut.block, stream, op, shape, channels, cut.rows);
  });
}

}  // namespace lockstep::cuda
