#include "ports/cuda/kernels/checksum.hpp"

#include "ports/cuda/kernels/vector.cuh"

namespace lockstep::cuda {

namespace {

/// Zeros before the first word change nothing: they fill up the first block.
__global__ void __launch_bounds__(block_threads)
    crc_kernel(const std::uint32_t* words, std::size_t count, std::uint32_t* sums) {
  __shared__ std::uint32_t parts[block_threads];
  constexpr std::uint32_t one_round = crc_shift(block_threads);
  const std::size_t absent = gridDim.x * crc_block_words - count;
  std::uint32_t sum = 0;
  for (std::size_t round = 0; round < crc_block_words / block_threads; ++round) {
    const std::size_t at = blockIdx.x * crc_block_words + round * block_threads + threadIdx.x;
    sum = crc_product(one_round, sum) ^ (at < absent ? 0 : words[at - absent]);
  }
  parts[threadIdx.x] = sum;
  constexpr std::uint32_t one_word = crc_shift(1);
  std::uint32_t shift = one_word;
  for (unsigned left = block_threads / 2; left > 0; left /= 2) {
    __syncthreads();
    if (threadIdx.x < left)
      sum = crc_product(shift, parts[2 * threadIdx.x]) ^ parts[2 * threadIdx.x + 1];
    __syncthreads();
    if (threadIdx.x < left) parts[threadIdx.x] = sum;
    shift = crc_product(shift, shift);
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

}  // namespace

void crc_sums(const void* words, std::size_t count, std::uint32_t* sums, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((count + crc_block_words - 1) / crc_block_words);
  if (blocks == 0) return;
  launch("crc_kernel", crc_kernel, blocks, block_threads, stream,
         static_cast<const std::uint32_t*>(words), count, sums);
}

}  // namespace lockstep::cuda
