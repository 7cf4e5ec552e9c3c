#pragma once

#include "ports/cuda/kernels/columns.cuh"

/// The sums of batch norm's two passes. They are made in two levels: blocks sum rows in fp32 and
/// each writes one line of sums; a second kernel adds those lines in double, in order.
namespace lockstep::cuda {

// Fills an H200 (132 processors) four times, and limits what the second level reads.
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

constexpr unsigned finish_lanes = 32;

/// Adds the lines for one channel; the threads of row 0 get the two sums. Needs blocks of (32,
/// finish_lanes) threads, with the thread's channel along x.
__device__ inline void add_lines(const float* scratch, unsigned lines, int channels, int channel,
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

inline dim3 finish_grid(const Matrix& shape) {
  return dim3(static_cast<unsigned>(shape.channels + 31) / 32);
}
inline dim3 finish_block() { return dim3(32, finish_lanes); }

}  // namespace lockstep::cuda
