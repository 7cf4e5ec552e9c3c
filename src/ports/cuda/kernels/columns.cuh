#pragma once

#include <algorithm>
#include <type_traits>

#include "ports/cuda/kernels/vector.cuh"

/// For kernels over [rows, channels] in which a thread keeps its channels: threadIdx.x takes
/// `width` neighbouring channels, threadIdx.y and the blocks along x take rows, the blocks along y
/// take the remaining channels. A warp reads whole lines for any number of channels.
namespace lockstep::cuda {

struct Columns {
  dim3 grid, block;
};

/// The cut depends on the shape alone, so that sums have one order on every device.
inline Columns columns(const Matrix& shape, unsigned values, unsigned rows_a_thread,
                       unsigned most_blocks) {
  const auto groups = (static_cast<unsigned>(shape.channels) + values - 1) / values;
  unsigned lanes = 1;
  while (lanes < groups && lanes < 32) lanes *= 2;
  const unsigned rows = block_threads / lanes;
  const unsigned across = (groups + lanes - 1) / lanes;
  const std::size_t wanted =
      (shape.rows + std::size_t{rows} * rows_a_thread - 1) / (std::size_t{rows} * rows_a_thread);
  const std::size_t most = std::max(1u, most_blocks / across);
  const auto along = static_cast<unsigned>(std::clamp<std::size_t>(wanted, 1, most));
  return {dim3(along, across), dim3(lanes, rows)};
}

/// This thread's first channel.
__device__ inline int first_channel(int values) {
  return static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * values;
}

/// Calls use(offset of the thread's channels, what load(offset) returned) for each of the thread's
/// rows, in order. The loads of `ahead` rows start before the first one is used: with one load in
/// flight for each thread, a GPU waits for its memory most of the time.
template <int ahead, class Load, class Use>
__device__ void each_row(const Matrix& shape, int channel, const Load& load, const Use& use) {
  const auto channels = static_cast<std::size_t>(shape.channels);
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.y * channels;
  const std::size_t end = shape.rows * channels;
  std::size_t at = (static_cast<std::size_t>(blockIdx.x) * blockDim.y + threadIdx.y) * channels +
                   static_cast<std::size_t>(channel);
  std::invoke_result_t<Load, std::size_t> rows[ahead] = {};
  for (; at + (ahead - 1) * step < end; at += ahead * step) {
#pragma unroll
    for (int k = 0; k < ahead; ++k) rows[k] = load(at + k * step);
#pragma unroll
    for (int k = 0; k < ahead; ++k) use(at + k * step, rows[k]);
  }
#pragma unroll
  for (int k = 0; k < ahead - 1; ++k)
    if (at + k * step < end) rows[k] = load(at + k * step);
#pragma unroll
  for (int k = 0; k < ahead - 1; ++k)
    if (at + k * step < end) use(at + k * step, rows[k]);
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
