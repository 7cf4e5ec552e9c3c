#pragma once

#include "ports/cuda/kernels/columns.cuh"

/// The sums of batch norm's two passes, each in one kernel. Blocks sum rows in fp32, and each
/// writes one line of sums. The lines are dealt to at most 32 lanes; the last block of a lane to
/// arrive adds its lines in double, in order, and the last block of all adds the lanes, in order.
/// So the order of the sums does not depend on which block is last: atomics only count arrivals.
namespace lockstep::cuda {

/// One rank's chunk of what ranks tell each other.
struct NormChunk {
  float* at;
  int channels;
  __device__ void set(int c, std::size_t rows, double first, double second) const {
    if (c == 0) at[0] = static_cast<float>(rows);
    at[1 + c] = static_cast<float>(first);
    at[1 + channels + c] = static_cast<float>(second);
  }
  __device__ double rows() const { return static_cast<double>(at[0]); }
  __device__ double first(int c) const { return static_cast<double>(at[1 + c]); }
  __device__ double second(int c) const { return static_cast<double>(at[1 + channels + c]); }
};
__device__ inline NormChunk chunk_of(const NormChunks& chunks, std::size_t rank, int channels) {
  return {chunks.all + rank * NormChunks::floats(channels), channels};
}
__device__ inline NormChunk own_chunk(const NormChunks& chunks, int channels) {
  return chunk_of(chunks, chunks.rank, channels);
}
/// How many values of a channel one image has.
__device__ inline double pixels_of(const NormChunks& chunks, const Matrix& shape) {
  const auto pixels = shape.rows / chunks.rows;
  return static_cast<double>(pixels);
}

// Values of one access, in every storage. The sums of more would take the registers in which the
// next rows arrive from memory.
constexpr int sum_width = 4;

/// All blocks run at once, which also limits what the next levels read. At least 4 rows a thread:
/// they are loaded at once, and fewer would only make more lines.
inline Columns sum_columns(const Matrix& shape) {
  return columns(shape, sum_width, 4, blocks_at_once);
}

/// A thread of a large matrix has 8 rows, because it reads up to six numbers for each of its
/// channels first. A smaller one needs the blocks.
template <class T>
Columns point_columns(const Matrix& shape) {
  constexpr unsigned plenty = 16 * blocks_at_once, any = ~0u;
  const Columns few = columns(shape, width<T>, 8, any);
  return few.grid.x * few.grid.y >= plenty ? few : columns(shape, width<T>, 4, any);
}

constexpr unsigned sum_lanes = 32;
constexpr unsigned column_tickets = sum_lanes + 1;  // for each block along y

/// Whether this block is the last of `count` that come to the ticket; if so, it sees what the
/// others wrote before. Leaves the ticket as it found it, at 0. All threads of the block call it.
__device__ inline bool last_to_arrive(unsigned* ticket, unsigned count) {
  __threadfence();  // what this thread has written is seen before the ticket is taken
  __syncthreads();
  const bool asks = threadIdx.x == 0 && threadIdx.y == 0;
  const bool last = __syncthreads_or(asks && atomicInc(ticket, count - 1) == count - 1) != 0;
  if (last) __threadfence();
  return last;
}

/// The sum of `count` values at `from` that are `step` apart, in order.
template <class T>
__device__ double add_in_order(const T* from, unsigned count, std::size_t step) {
  double sum = 0;
#pragma unroll 8
  for (unsigned i = 0; i < count; ++i, from += step)
    sum += static_cast<double>(__ldcg(from));  // not from a cache that other blocks do not write to
  return sum;
}

/// Adds the sums of all blocks, [2, sum_width] a thread. For each channel of its columns, the last
/// block calls finish(channel, first sum, second sum) on one thread. All threads of the block call
/// it.
template <class Finish>
__device__ void sum_blocks(const Matrix& shape, int channel, float (&sums)[2 * sum_width],
                           const SumScratch& to, const Finish& finish) {
  constexpr int W = sum_width;
  alignas(double) __shared__ float shared[2 * W * block_threads];
  sum_rows(sums, shared);
  const auto channels = static_cast<std::size_t>(shape.channels);
  const unsigned blocks = gridDim.x, lanes = blocks < sum_lanes ? blocks : sum_lanes,
                 lane = blockIdx.x % lanes;
  const std::size_t size = 2 * channels;  // of a line
  double* of_lanes = static_cast<double*>(to.lines);
  float* lines = reinterpret_cast<float*>(of_lanes + lanes * size);
  if (threadIdx.y == 0 && channel < shape.channels) {
#pragma unroll
    for (int k = 0; k < 2 * W; ++k) {
      const std::size_t at = k < W ? channel + k : channels + channel + k - W;
      if (blocks > lanes)
        lines[blockIdx.x * size + at] = sums[k];
      else
        of_lanes[lane * size + at] = static_cast<double>(sums[k]);
    }
  }
  // From here on, `parts` threads share one sum: the first of the block's `width` channels, or the
  // second. With few channels, one thread would wait for memory again and again.
  const unsigned width = blockDim.x * W, sums_here = 2 * width, parts = block_threads / sums_here;
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x, part = thread / sums_here;
  const std::size_t c = std::size_t{blockIdx.y} * width + thread % width;
  const std::size_t at = thread % sums_here / width * channels + c;
  const bool has = c < channels;
  double* of_parts = reinterpret_cast<double*>(shared);
  // The sum of `count` values that are `step` apart, for the threads of part 0.
  const auto add_parts = [&](const auto* from, unsigned count, std::size_t step) {
    const unsigned its = count / parts + (part < count % parts ? 1 : 0);
    of_parts[thread] = has ? add_in_order(from + part * step, its, parts * step) : 0;
    __syncthreads();
    double sum = of_parts[thread];
    for (unsigned p = 1; p < parts && part == 0; ++p) sum += of_parts[thread + p * sums_here];
    return sum;
  };
  unsigned* tickets = to.tickets + blockIdx.y * column_tickets;
  if (blocks > lanes) {
    const unsigned of_lane = (blocks - lane + lanes - 1) / lanes;
    if (!last_to_arrive(tickets + 1 + lane, of_lane)) return;
    const double sum = add_parts(lines + lane * size + at, of_lane, lanes * size);
    if (has && part == 0) of_lanes[lane * size + at] = sum;
  }
  if (!last_to_arrive(tickets, lanes)) return;
  const double sum = add_parts(of_lanes + at, lanes, size);
  __syncthreads();
  if (part == 0) of_parts[thread] = sum;
  __syncthreads();
  if (has && thread < width)
    finish(static_cast<int>(c), of_parts[thread], of_parts[thread + width]);
}

}  // namespace lockstep::cuda
