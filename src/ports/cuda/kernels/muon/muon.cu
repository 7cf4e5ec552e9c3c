#include "lockstep/optim/muon.hpp"
#include "lockstep/optim/sgd.hpp"
#include "ports/cuda/kernels/muon/muon.hpp"

#include <algorithm>
#include <utility>

#include "ports/cuda/kernels/update.cuh"

namespace lockstep::cuda {

namespace {

constexpr unsigned tile = 64, depth_of_tile = 16, across = 16, each = tile / across;
static_assert(across * across == block_threads);

/// Where a tile begins.
struct Place {
  std::size_t row, column;
};

/// A matrix, or its transpose: value (r, c) is number r * by_row + c * by_column.
struct View {
  float* data;
  std::size_t by_row, by_column;
  __device__ float& at(std::size_t r, std::size_t c) const {
    return data[r * by_row + c * by_column];
  }
};
/// out = alpha * left * right + beta * added, and `diagonal` more on the diagonal.
struct Product {
  std::size_t rows, columns, depth;
  View left, right, out, added;
  float alpha, beta, diagonal;
  bool symmetric;  ///< tiles above the diagonal are those below
  const DeviceScalars* scalars;
};

// A block makes one tile of `out`; a thread rows y, y + 16, ... and columns x, x + 16, ... of it.
__global__ void __launch_bounds__(block_threads) product_kernel(Product p) {
  if (!p.scalars->apply) return;
  __shared__ float left[depth_of_tile][tile], right[depth_of_tile][tile];
  const std::size_t tiles = (p.columns + tile - 1) / tile;
  const Place first{blockIdx.x / tiles * tile, blockIdx.x % tiles * tile};
  if (p.symmetric && first.column > first.row) return;
  const unsigned x = threadIdx.x % across, y = threadIdx.x / across;
  float sums[each][each] = {};
  for (std::size_t begin = 0; begin < p.depth; begin += depth_of_tile) {
    for (unsigned i = threadIdx.x; i < depth_of_tile * tile; i += block_threads) {
      const unsigned k = i / tile, n = i % tile;
      const std::size_t row = first.row + n, column = first.column + n;
      const bool within = begin + k < p.depth;
      left[k][n] = within && row < p.rows ? p.left.at(row, begin + k) : 0;
      right[k][n] = within && column < p.columns ? p.right.at(begin + k, column) : 0;
    }
    __syncthreads();
    for (unsigned k = 0; k < depth_of_tile; ++k)
#pragma unroll
      for (unsigned i = 0; i < each; ++i)
#pragma unroll
        for (unsigned j = 0; j < each; ++j)
          sums[i][j] += left[k][y + i * across] * right[k][x + j * across];
    __syncthreads();
  }
  for (unsigned i = 0; i < each; ++i)
    for (unsigned j = 0; j < each; ++j) {
      const std::size_t r = first.row + y + i * across, c = first.column + x + j * across;
      if (r >= p.rows || c >= p.columns) continue;
      float value = p.alpha * sums[i][j];
      if (p.beta != 0) value += p.beta * p.added.at(r, c);
      if (r == c) value += p.diagonal;
      p.out.at(r, c) = value;
      if (p.symmetric && first.row != first.column) p.out.at(c, r) = value;
    }
}

void put_product(const Product& p, cudaStream_t stream) {
  const std::size_t tiles = (p.rows + tile - 1) / tile * ((p.columns + tile - 1) / tile);
  launch("product_kernel", product_kernel, static_cast<unsigned>(tiles), block_threads, stream, p);
}

__global__ void __launch_bounds__(block_threads)
    begin_kernel(MuonFilter filter, const DeviceScalars* scalars) {
  const std::size_t i = thread_index();
  if (i >= filter.outputs * filter.columns || !scalars->apply) return;
  const float begin = optim::muon_begin(std::sqrt(filter.direction_sums[filter.slice]));
  filter.room[i] = begin * filter.directions[filter.offset + i];
}

template <class T, bool copies>
__global__ void __launch_bounds__(block_threads)
    end_kernel(UpdateArgs args, MuonFilter filter, const float* x) {
  const std::size_t i = thread_index();
  if (i >= filter.outputs * filter.columns || !args.scalars->apply) return;
  const float lr = args.scalars->step.lr;
  const float rate = args.rates ? lr * args.rates[filter.slice] : lr;
  const float keep = optim::muon_keep(filter.outputs, std::sqrt(filter.weight_sums[filter.slice]));
  const std::size_t at = filter.offset + i;
  const float weight = keep * args.weights[at] - rate * x[i];
  args.weights[at] = weight;
  if constexpr (copies) static_cast<T*>(args.copies)[at] = rounded<T>(weight);
}

template <class T, bool copies>
__global__ void __launch_bounds__(block_threads) moments_kernel(UpdateArgs args, MuonArgs muon) {
  if (!args.scalars->apply) return;
  const Chunk chunk = args.chunks[args.first_chunk + blockIdx.x];
  if (muon.adaptive[chunk.slice] == 0) {
    const optim::SgdRule rule{rate_of(args, chunk), muon.rest_momentum,
                              args.weight_decay[chunk.slice], args.nesterov};
    update_chunk<T, copies>(
        args, chunk, rule,
        [](const optim::SgdRule& by, float g, float& w, float& v) { optim::sgd(by, g, w, v); });
    return;
  }
  const float unscale = args.scalars->inverse_scale;
  float g[quad], v[quad];
  for (std::uint32_t i = threadIdx.x * quad; i < chunk.count; i += block_threads * quad) {
    const std::size_t at = chunk.offset + i;
    load(args.gradients + at, g);
    load(args.velocities + at, v);
#pragma unroll
    for (int k = 0; k < quad; ++k)
      g[k] = optim::muon_direction(args.momentum, args.nesterov, g[k] * unscale, v[k]);
    store(muon.directions + at, g);
    store(args.velocities + at, v);
  }
}

/// The iterations of ports/cpu/arena/muon.cpp, with x as the filter lies: where it has more
/// rows than columns, read as its transpose.
class Iterations {
 public:
  Iterations(const MuonFilter& filter, const DeviceScalars* scalars, cudaStream_t stream)
      : scalars_(scalars),
        stream_(stream),
        height_(std::min(filter.outputs, filter.columns)),
        width_(std::max(filter.outputs, filter.columns)) {
    const bool upright = filter.outputs <= filter.columns;
    const std::size_t by_row = upright ? width_ : 1, by_column = upright ? 1 : height_;
    x_ = {filter.room, by_row, by_column};
    next_ = {filter.room + height_ * width_, by_row, by_column};
    for (std::size_t i = 0; i < 4; ++i)
      squares_[i] = {filter.room + 2 * height_ * width_ + i * height_ * height_, height_, 1};
  }
  const float* x() const { return x_.data; }

  void run(int count) {
    auto& [s, p, t, q] = squares_;
    square(width_, x_, {x_.data, x_.by_column, x_.by_row}, s);
    polynomial(q);
    View newest = q;
    for (int i = 1; i < count; ++i) {
      square(height_, newest, s, t);
      square(height_, t, newest, s);
      polynomial(p);
      newest = p;
      square(height_, p, q, t);
      std::swap(q, t);
    }
    put_product({height_, width_, height_, q, x_, next_, next_, 1, 0, 0, false, scalars_}, stream_);
    std::swap(x_, next_);
  }

 private:
  void square(std::size_t depth, const View& left, const View& right, const View& out) {
    put_product({height_, height_, depth, left, right, out, out, 1, 0, 0, true, scalars_}, stream_);
  }
  void polynomial(const View& out) {
    constexpr optim::Quintic by;
    const View& s = squares_[0];
    put_product({height_, height_, height_, s, s, out, s, by.c, by.b, by.a, true, scalars_},
                stream_);
  }

  const DeviceScalars* scalars_;
  cudaStream_t stream_;
  std::size_t height_, width_;
  View x_, next_, squares_[4];
};

}  // namespace

void muon_moments(const UpdateArgs& args, const MuonArgs& muon, cudaStream_t stream) {
  if (args.chunk_count == 0) return;
  with_copies(args.copies, args.storage, [&]<class T, bool copies>() {
    launch("moments_kernel", moments_kernel<T, copies>, static_cast<unsigned>(args.chunk_count),
           block_threads, stream, args, muon);
  });
}

void muon_filter(const UpdateArgs& args, const MuonFilter& filter, int iterations,
                 cudaStream_t stream) {
  const unsigned blocks = blocks_for(filter.outputs * filter.columns);
  launch("begin_kernel", begin_kernel, blocks, block_threads, stream, filter, args.scalars);
  Iterations all(filter, args.scalars, stream);
  for (int done = 0; done < iterations;) {
    const int now = optim::muon_at_once(iterations - done, done == 0);
    all.run(now);
    done += now;
  }
  with_copies(args.copies, args.storage, [&]<class T, bool copies>() {
    launch("end_kernel", end_kernel<T, copies>, blocks, block_threads, stream, args, filter,
           all.x());
  });
}

}  // namespace lockstep::cuda
