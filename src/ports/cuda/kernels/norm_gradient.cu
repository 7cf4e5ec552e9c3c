#include <type_traits>

#include "ports/cuda/kernels/norm_sums.cuh"

// Batch norm backward, starting from the gradient after the ReLU.
namespace lockstep::cuda {

namespace {

/// The gradient after the ReLU, for the W values of one access.
template <class T, int W, Mask mask, bool two>
struct Gradient {
  const T *x, *first, *second;
  const std::uint8_t* bits;
  int bit;  ///< of the first value
  float scale[W], shift[W];

  /// What it needs of one row, and x itself.
  struct Row {
    Pack<T, W> x, first, second;
    std::uint8_t bits;
  };

  __device__ Gradient(const NormBackward& op, const NormChannels& n, int channel)
      : x(static_cast<const T*>(op.x)),
        first(static_cast<const T*>(op.first)),
        second(static_cast<const T*>(op.second)),
        bits(op.bits),
        bit(channel % width<T>) {
    if constexpr (mask == Mask::from_x) {
      load_floats(n.scale + channel, scale);
      load_floats(n.shift + channel, shift);
    }
  }
  __device__ Row load(std::size_t at) const {
    Row row{access<W>(x + at), access<W>(first + at), {}, 0};
    if constexpr (two) row.second = access<W>(second + at);
    if constexpr (mask == Mask::from_bits) row.bits = bits[at / width<T>];
    return row;
  }
  __device__ void from(const Row& row, float (&v)[W], float (&g)[W]) const {
    unpack(row.x, v);
    unpack(row.first, g);
    if constexpr (two) {
      float more[W];
      unpack(row.second, more);
#pragma unroll
      for (int k = 0; k < W; ++k) g[k] += more[k];
    }
    if constexpr (mask == Mask::from_x)
#pragma unroll
      for (int k = 0; k < W; ++k) g[k] = v[k] * scale[k] + shift[k] > 0 ? g[k] : 0.f;
    if constexpr (mask == Mask::from_bits)
#pragma unroll
      for (int k = 0; k < W; ++k) g[k] = (row.bits >> bit >> k & 1) != 0 ? g[k] : 0.f;
  }
};

/// Sets the gradients from the sums of g and of g * (x - mean) over one channel.
/// The sums that backward makes over a channel's values.
struct GradientSums {
  double g, gx;
};

/// `own`: of this rank's rows; `all`: of those over which the statistics are, `count` in all.
__device__ void set_gradients(int c, const GradientSums& own, const GradientSums& all, double count,
                              const NormParameters& p, const NormChannels& n, bool accumulate,
                              const DeviceScalars* scalars) {
  const auto of = [&](const GradientSums& sums) {
    return backend::arithmetic::norm_gradient(sums.g, sums.gx, count, n.scale[c],
                                              n.inverse_deviation[c]);
  };
  const auto input = of(all), g = of(own);
  n.a[c] = input.a;
  n.b[c] = input.b;
  n.c[c] = input.c;
  p.dgamma[c] = accumulate ? p.dgamma[c] + g.dgamma : g.dgamma;
  p.dbeta[c] = accumulate ? p.dbeta[c] + g.dbeta : g.dbeta;
  const float share = scalars->step.statistics_share;
  p.mean_share[c] = backend::arithmetic::kept_statistic(accumulate, p.mean_share[c], share,
                                                        p.momentum, n.mean[c]);
  p.var_share[c] =
      backend::arithmetic::kept_statistic(accumulate, p.var_share[c], share, p.momentum,
                                          backend::arithmetic::unbiased(n.variance[c], count));
}

/// Sets them, or tells the sums to the ranks that share the statistics.
__device__ void give_gradients(int c, const GradientSums& own, const NormParameters& p,
                               const NormChannels& n, bool accumulate, const DeviceScalars* scalars,
                               const Matrix& shape) {
  if (p.chunks.all) return own_chunk(p.chunks, shape.channels).set(c, p.chunks.rows, own.g, own.gx);
  set_gradients(c, own, own, static_cast<double>(shape.rows), p, n, accumulate, scalars);
}

template <class T, Mask mask, bool two>
__global__ void __launch_bounds__(block_threads, blocks_each)
    gradient_sums_kernel(NormBackward op, Matrix shape, NormParameters p, NormChannels n,
                         bool accumulate, const DeviceScalars* scalars, SumScratch to) {
  constexpr int W = sum_width;
  const int channel = first_channel(W);
  float sums[2 * W] = {};
  if (channel < shape.channels) {
    T* kept = static_cast<T*>(op.g);
    using From = Gradient<T, W, mask, two>;
    const From gradient(op, n, channel);
    float mean[W];
    load_floats(n.mean + channel, mean);
    each_row<(two && mask != Mask::from_bits) || sizeof(T) == 4 ? 2 : 3>(
        shape, channel, walk_of_grid(shape, true),
        [&](std::size_t at) { return gradient.load(at); },
        [&](std::size_t at, const typename From::Row& row) {
          float v[W], g[W];
          gradient.from(row, v, g);
          if (kept) store(kept + at, g);
#pragma unroll
          for (int k = 0; k < W; ++k) {
            sums[k] += g[k];
            sums[W + k] += g[k] * (v[k] - mean[k]);
          }
        });
  }
  sum_blocks(shape, channel, sums, to, [&](int c, double sum_g, double sum_gx) {
    give_gradients(c, {sum_g, sum_gx}, p, n, accumulate, scalars, shape);
  });
}

__global__ void gradients_of_sums_kernel(const float* sums, Matrix shape, NormParameters p,
                                         NormChannels n, bool accumulate,
                                         const DeviceScalars* scalars) {
  const int c = static_cast<int>(thread_index());
  if (c >= shape.channels) return;
  const double dgamma = sums[c], dbeta = sums[shape.channels + c];
  give_gradients(c, {dbeta, dgamma / static_cast<double>(n.inverse_deviation[c])}, p, n, accumulate,
                 scalars, shape);
}

/// In the order of the ranks.
__global__ void gradients_of_ranks_kernel(Matrix shape, NormParameters p, NormChannels n,
                                          bool accumulate, const DeviceScalars* scalars) {
  const int c = static_cast<int>(thread_index());
  if (c >= shape.channels) return;
  double count = 0;
  const double pixels = pixels_of(p.chunks, shape);
  GradientSums own{}, all{};
  for (std::size_t rank = 0; rank < p.chunks.ranks; ++rank) {
    const NormChunk its = chunk_of(p.chunks, rank, shape.channels);
    const GradientSums sums{its.first(c), its.second(c)};
    if (rank == p.chunks.rank) own = sums;
    all.g += sums.g;
    all.gx += sums.gx;
    count += its.rows() * pixels;
  }
  set_gradients(c, own, all, count, p, n, accumulate, scalars);
}

template <class T, Mask mask, bool two>
__global__ void __launch_bounds__(block_threads, blocks_each)
    input_gradient_kernel(NormBackward op, Matrix shape, NormChannels n, unsigned rows, T* dx) {
  constexpr int W = width<T>;
  const int channel = first_channel(W);
  if (channel >= shape.channels) return;
  using From = Gradient<T, W, mask, two>;
  const From gradient(op, n, channel);
  float mean[W], a[W], b[W], c[W];
  load_floats(n.mean + channel, mean);
  load_floats(n.a + channel, a);
  load_floats(n.b + channel, b);
  load_floats(n.c + channel, c);
  each_row<two && mask != Mask::none ? 1 : 2>(
      shape, channel, walk_of_block(shape, rows, op.down),
      [&](std::size_t at) { return gradient.load(at); },
      [&](std::size_t at, const typename From::Row& row) {
        float v[W], g[W];
        gradient.from(row, v, g);
#pragma unroll
        for (int k = 0; k < W; ++k) v[k] = g[k] * a[k] + ((v[k] - mean[k]) * b[k] + c[k]);
        store(dx + at, v);
      });
}

template <Mask mask>
struct MaskOf {};

/// Calls body(T{}, MaskOf<mask>{}, two as a type) with the types that the operation needs.
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
      case Mask::from_bits:
        return with_two(MaskOf<Mask::from_bits>{});
    }
  });
}
}  // namespace

void norm_gradients(const NormBackward& op, const Matrix& shape, Storage storage,
                    const NormParameters& parameters, const NormChannels& channels, bool accumulate,
                    const DeviceScalars* scalars, const SumScratch& scratch, cudaStream_t stream) {
  with_gradient(op, storage, [&]<class T, Mask mask, class Two>(T, MaskOf<mask>, Two) {
    const Columns cut = sum_columns(shape);
    launch("gradient_sums_kernel", gradient_sums_kernel<T, mask, Two::value>, cut.grid, cut.block,
           stream, op, shape, parameters, channels, accumulate, scalars, scratch);
  });
}

void norm_gradients_of_sums(const float* sums, const Matrix& shape,
                            const NormParameters& parameters, const NormChannels& channels,
                            bool accumulate, const DeviceScalars* scalars, cudaStream_t stream) {
  launch("gradients_of_sums_kernel", gradients_of_sums_kernel,
         blocks_for(static_cast<std::size_t>(shape.channels)), block_threads, stream, sums, shape,
         parameters, channels, accumulate, scalars);
}

void norm_gradients_of_ranks(const Matrix& shape, const NormParameters& parameters,
                             const NormChannels& channels, bool accumulate,
                             const DeviceScalars* scalars, cudaStream_t stream) {
  launch("gradients_of_ranks_kernel", gradients_of_ranks_kernel,
         blocks_for(static_cast<std::size_t>(shape.channels)), block_threads, stream, shape,
         parameters, channels, accumulate, scalars);
}

void norm_input_gradient(const NormBackward& op, const Matrix& shape, Storage storage,
                         const NormChannels& channels, void* dx, cudaStream_t stream) {
  NormBackward from = op;
  if (op.g) {  // g was written: it already holds what the ReLU let through
    from.first = op.g;
    from.second = nullptr;
    from.mask = Mask::none;
  }
  with_gradient(from, storage, [&]<class T, Mask mask, class Two>(T, MaskOf<mask>, Two) {
    const Columns cut = point_columns<T>(shape);
    launch("input_gradient_kernel", input_gradient_kernel<T, mask, Two::value>, cut.grid, cut.block,
           stream, from, shape, channels, cut.rows, static_cast<T*>(dx));
  });
}

}  // namespace lockstep::cuda
