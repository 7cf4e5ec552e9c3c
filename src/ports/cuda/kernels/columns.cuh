#pragma once

#include <algorithm>
#include <type_traits>

#include "lockstep/base/error.hpp"
#include "ports/cuda/kernels/vector.cuh"

/// For kernels over [rows, channels] in which a thread keeps its channels: threadIdx.x takes
/// `width` neighbouring channels, threadIdx.y and the blocks along x take rows, the blocks along y
/// take the remaining channels. A warp reads whole lines for any number of channels.
///
/// What the kernel before has written or read last is still in the L2 cache when a kernel starts:
/// tens of megabytes, where a matrix may have hundreds. So a kernel can take the rows from either
/// end. A convolution writes rows from the first to the last.
namespace lockstep::cuda {

struct Columns {
  dim3 grid, block;
  unsigned rows;  ///< of a block
};

/// The cut depends on the shape alone, so that sums have one order on every device.
inline Columns columns(const Matrix& shape, unsigned values, unsigned rows_a_thread,
                       unsigned most_blocks) {
  check(shape.rows < std::size_t{1} << 31, "a batch has too many rows for the GPU's kernels");
  const auto groups = (static_cast<unsigned>(shape.channels) + values - 1) / values;
  unsigned lanes = 1;
  while (lanes < groups && lanes < 32) lanes *= 2;
  const unsigned rows = block_threads / lanes;
  const unsigned across = (groups + lanes - 1) / lanes;
  const std::size_t wanted =
      (shape.rows + std::size_t{rows} * rows_a_thread - 1) / (std::size_t{rows} * rows_a_thread);
  const std::size_t most = std::max(1u, most_blocks / across);
  const auto along = static_cast<unsigned>(std::clamp<std::size_t>(wanted, 1, most));
  return {dim3(along, across), dim3(lanes, rows), rows * rows_a_thread};
}

/// This thread's first channel.
__device__ inline int first_channel(int values) {
  return static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * values;
}

/// The rows of a thread: `begin`, `begin` + `step`, ... before `end`. `down`: counted from the
/// last row of the matrix.
struct Walk {
  unsigned begin, step, end;
  bool down;
};

/// All blocks walk through the matrix together.
__device__ inline Walk walk_of_grid(const Matrix& shape, bool down) {
  return {blockIdx.x * blockDim.y + threadIdx.y, gridDim.x * blockDim.y,
          static_cast<unsigned>(shape.rows), down};
}

/// Each block has `rows` neighbouring rows. The blocks start in order.
__device__ inline Walk walk_of_block(const Matrix& shape, unsigned rows, bool down) {
  const unsigned first = blockIdx.x * rows, end = static_cast<unsigned>(shape.rows);
  return {first + threadIdx.y, blockDim.y, end - first < rows ? end : first + rows, down};
}

/// Calls use(offset of the thread's channels, what load(offset) returned) for each of the thread's
/// rows, in order. The loads of `ahead` rows start before the first one is used: with one load in
/// flight for each thread, a GPU waits for its memory most of the time.
template <int ahead, class Load, class Use>
__device__ void each_row(const Matrix& shape, int channel, const Walk& walk, const Load& load,
                         const Use& use) {
  const auto channels = static_cast<std::size_t>(shape.channels);
  const std::size_t up = walk.step * channels, step = walk.down ? 0 - up : up;
  const std::size_t first = walk.down ? shape.rows - 1 - walk.begin : walk.begin;
  std::size_t at = first * channels + static_cast<std::size_t>(channel);
  unsigned row = walk.begin;
  std::invoke_result_t<Load, std::size_t> rows[ahead] = {};
  for (; row + (ahead - 1) * walk.step < walk.end; row += ahead * walk.step, at += ahead * step) {
#pragma unroll
    for (int k = 0; k < ahead; ++k) rows[k] = load(at + k * step);
#pragma unroll
    for (int k = 0; k < ahead; ++k) use(at + k * step, rows[k]);
  }
#pragma unroll
  for (int k = 0; k < ahead - 1; ++k)
    if (row + k * walk.step < walk.end) rows[k] = load(at + k * step);
#pragma unroll
  for (int k = 0; k < ahead - 1; ++k)
    if (row + k * walk.step < walk.end) use(at + k * step, rows[k]);
}

/// Sums v over the block's rows; the threads of row 0 get them. `shared`: N * block_threads floats.
/// All threads of the block call it.
template <int N>
__device__ void sum_rows(float (&v)[N], float* shared) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int k = 0; k < N; ++k) shared[k * block_threads + thread] = v[k];
  __syncthreads();
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) {
#pragma unroll
      for (int k = 0; k < N; ++k)
        shared[k * block_threads + thread] +=
            shared[k * block_threads + thread + half * blockDim.x];
    }
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < N; ++k) v[k] = shared[k * block_threads + thread];
}

}  // namespace lockstep::cuda
