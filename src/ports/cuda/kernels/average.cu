#include "ports/cuda/kernels/update.cuh"

// Kernels over the arena: norms, LARS and clipping by them, the weights' average.
namespace lockstep::cuda {

namespace {

// A chunk's sum: each thread adds its quads in order, then the threads' sums meet in a fixed tree.
__global__ void __launch_bounds__(block_threads) chunk_squares_kernel(NormArgs args) {
  __shared__ double sums[block_threads];
  const std::size_t number = args.first_chunk + blockIdx.x;
  const Chunk chunk = args.chunks[number];
  double sum = 0;
  for (std::uint32_t i = threadIdx.x * quad; i < chunk.count; i += block_threads * quad) {
    float v[quad];
    load(args.values + chunk.offset + i, v);
#pragma unroll
    for (int k = 0; k < quad; ++k) sum += static_cast<double>(v[k]) * static_cast<double>(v[k]);
  }
  sums[threadIdx.x] = sum;
  for (unsigned half = block_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) args.chunk_sums[number] = sums[0];
}

__global__ void __launch_bounds__(block_threads) slice_squares_kernel(NormArgs args) {
  const std::size_t slice = args.first_slice + thread_index();
  if (slice >= args.first_slice + args.slices) return;
  double sum = 0;
  for (std::size_t c = args.first_chunks[slice]; c < args.first_chunks[slice + 1]; ++c)
    sum += args.chunk_sums[c];
  args.slice_sums[slice] = sum;
}

template <class T, bool copies>
__global__ void __launch_bounds__(block_threads) lars_kernel(UpdateArgs args, LarsArgs lars) {
  if (!args.scalars->apply) return;
  const Chunk chunk = args.chunks[args.first_chunk + blockIdx.x];
  const float unscale = args.scalars->inverse_scale, decay = args.weight_decay[chunk.slice];
  float rate = rate_of(args, chunk);
  if (lars.adaptive[chunk.slice] != 0)
    rate *= backend::arithmetic::trust_ratio(
        lars.coefficient, lars.epsilon, decay, std::sqrt(lars.weight_sums[chunk.slice]),
        std::sqrt(lars.gradient_sums[chunk.slice]) * static_cast<double>(unscale));
  const backend::arithmetic::SgdRule rule{rate, args.momentum, decay, args.nesterov};
  update_chunk<T, copies>(args, chunk, rule,
                          [](const backend::arithmetic::SgdRule& by, float g, float& w, float& v) {
                            backend::arithmetic::lars(by, g, w, v);
                          });
}

__global__ void clip_kernel(const double* slice_sums, std::size_t slices, float limit, bool scaled,
                            DeviceScalars* scalars) {
  double sum = 0;
  for (std::size_t s = 0; s < slices; ++s) sum += slice_sums[s];
  const float unscale = scaled ? scalars->inverse_scale : 1;
  scalars->clipped_norm = std::sqrt(sum) * static_cast<double>(unscale);
  scalars->inverse_scale = unscale * backend::arithmetic::clip_factor(scalars->clipped_norm, limit);
}

__global__ void __launch_bounds__(block_threads) update_averages_kernel(AverageArgs args) {
  const std::size_t i = thread_index() * quad;
  if (i >= args.count || !args.scalars->apply) return;
  const float share = args.scalars->step.average_share;
  float w[quad], average[quad];
  load(args.weights + i, w);
  load(args.averages + i, average);
#pragma unroll
  for (int k = 0; k < quad; ++k)
    average[k] = backend::arithmetic::averaged(average[k], w[k], share);
  store(args.averages + i, average);
}

template <class T, bool copies>
__global__ void __launch_bounds__(block_threads) swap_averages_kernel(AverageArgs args) {
  const std::size_t i = thread_index() * quad;
  if (i >= args.count) return;
  float w[quad], average[quad];
  load(args.weights + i, w);
  load(args.averages + i, average);
  store(args.weights + i, average);
  store(args.averages + i, w);
  if constexpr (copies) store(static_cast<T*>(args.copies) + i, average);
}

}  // namespace

void slice_squares(const NormArgs& args, cudaStream_t stream) {
  if (args.chunk_count == 0) return;
  launch("chunk_squares_kernel", chunk_squares_kernel, static_cast<unsigned>(args.chunk_count),
         block_threads, stream, args);
  launch("slice_squares_kernel", slice_squares_kernel, blocks_for(args.slices), block_threads,
         stream, args);
}

void lars_update(const UpdateArgs& args, const LarsArgs& lars, cudaStream_t stream) {
  if (args.chunk_count == 0) return;
  const auto blocks = static_cast<unsigned>(args.chunk_count);
  with_copies(args.copies, args.storage, [&]<class T, bool copies>() {
    launch("lars_kernel", lars_kernel<T, copies>, blocks, block_threads, stream, args, lars);
  });
}

void clip(const double* slice_sums, std::size_t slices, float limit, bool scaled,
          DeviceScalars* scalars, cudaStream_t stream) {
  launch("clip_kernel", clip_kernel, 1, 1, stream, slice_sums, slices, limit, scaled, scalars);
}

void update_averages(const AverageArgs& args, cudaStream_t stream) {
  launch("update_averages_kernel", update_averages_kernel, blocks_for(args.count / quad),
         block_threads, stream, args);
}

void swap_averages(const AverageArgs& args, cudaStream_t stream) {
  const unsigned blocks = blocks_for(args.count / quad);
  with_copies(args.copies, args.storage, [&]<class T, bool copies>() {
    launch("swap_averages_kernel", swap_averages_kernel<T, copies>, blocks, block_threads, stream,
           args);
  });
}

}  // namespace lockstep::cuda
