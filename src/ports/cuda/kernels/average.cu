#include "lockstep/optim/average.hpp"
#include "lockstep/optim/clip.hpp"
#include "lockstep/optim/lamb.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/optim/sgd.hpp"
#include "ports/cuda/kernels/update.cuh"

// Kernels over the arena: norms, LARS, LAMB and clipping by them, the weights' average.
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

// A chunk's trust ratio, which its block also writes down: blocks of one slice write the same.
__device__ float trusted(const TrustArgs& trust, const Chunk& chunk, float ratio) {
  const bool adapts = trust.adaptive[chunk.slice] != 0;
  if (threadIdx.x == 0) trust.ratios[chunk.slice] = adapts ? ratio : 0;
  return adapts ? ratio : 1;
}

template <class T, bool copies>
__global__ void __launch_bounds__(block_threads) lars_kernel(UpdateArgs args, LarsArgs lars) {
  if (!args.scalars->apply) return;
  const Chunk chunk = args.chunks[args.first_chunk + blockIdx.x];
  const float unscale = args.scalars->inverse_scale, decay = args.weight_decay[chunk.slice];
  const float ratio = optim::trust_ratio(
      lars.coefficient, lars.epsilon, decay, std::sqrt(lars.trust.weight_sums[chunk.slice]),
      std::sqrt(lars.trust.step_sums[chunk.slice]) * static_cast<double>(unscale));
  const auto factors = optim::lars_factors(lars.form, lars.trust.adaptive[chunk.slice] != 0,
                                           rate_of(args, chunk), trusted(lars.trust, chunk, ratio));
  const optim::SgdRule rule{factors.lr, args.momentum, decay, args.nesterov, factors.outer};
  update_chunk<T, copies>(
      args, chunk, rule,
      [](const optim::SgdRule& by, float g, float& w, float& v) { optim::lars(by, g, w, v); });
}

__global__ void __launch_bounds__(block_threads)
    lamb_moments_kernel(UpdateArgs args, LambArgs lamb) {
  const DeviceScalars& now = *args.scalars;
  if (!now.apply) return;
  const Chunk chunk = args.chunks[args.first_chunk + blockIdx.x];
  const std::uint64_t t = now.step.steps_done + 1 - now.loss_scale.skipped;
  const optim::LambRule rule{args.momentum,
                             lamb.beta2,
                             lamb.epsilon,
                             args.weight_decay[chunk.slice],
                             optim::lamb_scale(args.momentum, t),
                             optim::lamb_scale(lamb.beta2, t)};
  const float unscale = now.inverse_scale;
  float g[quad], w[quad], first[quad], second[quad];
  for (std::uint32_t i = threadIdx.x * quad; i < chunk.count; i += block_threads * quad) {
    const std::size_t at = chunk.offset + i;
    load(args.gradients + at, g);
    load(args.weights + at, w);
    load(args.velocities + at, first);
    load(lamb.second_moments + at, second);
#pragma unroll
    for (int k = 0; k < quad; ++k)
      g[k] = optim::lamb(rule, g[k] * unscale, w[k], first[k], second[k]);
    store(lamb.steps + at, g);
    store(args.velocities + at, first);
    store(lamb.second_moments + at, second);
  }
}

template <class T, bool copies>
__global__ void __launch_bounds__(block_threads) lamb_kernel(UpdateArgs args, LambArgs lamb) {
  if (!args.scalars->apply) return;
  const Chunk chunk = args.chunks[args.first_chunk + blockIdx.x];
  const float ratio = optim::lamb_trust(std::sqrt(lamb.trust.weight_sums[chunk.slice]),
                                        std::sqrt(lamb.trust.step_sums[chunk.slice]));
  const float rate = rate_of(args, chunk) * trusted(lamb.trust, chunk, ratio);
  float u[quad], w[quad];
  for (std::uint32_t i = threadIdx.x * quad; i < chunk.count; i += block_threads * quad) {
    const std::size_t at = chunk.offset + i;
    load(lamb.steps + at, u);
    load(args.weights + at, w);
#pragma unroll
    for (int k = 0; k < quad; ++k) w[k] -= rate * u[k];
    store(args.weights + at, w);
    if constexpr (copies) store(static_cast<T*>(args.copies) + at, w);
  }
}

// Each thread counts which place its ratio has in their order. Equal ones have the order of slices.
__global__ void __launch_bounds__(block_threads)
    gather_trust_kernel(const float* ratios, std::size_t slices, DeviceScalars* scalars) {
  if (!scalars->apply) return;
  for (std::size_t s = threadIdx.x; s < slices; s += block_threads) {
    if (ratios[s] == 0) continue;
    std::size_t before = 0, all = 0;
    for (std::size_t other = 0; other < slices; ++other) {
      if (ratios[other] == 0) continue;
      ++all;
      if (ratios[other] < ratios[s] || (ratios[other] == ratios[s] && other < s)) ++before;
    }
    if (before == 0) scalars->trust.smallest = ratios[s];
    if (before == (all - 1) / 2) scalars->trust.median = ratios[s];
    if (before + 1 == all) scalars->trust.largest = ratios[s];
  }
}

__global__ void clip_kernel(const double* slice_sums, std::size_t slices, float limit, bool scaled,
                            DeviceScalars* scalars) {
  double sum = 0;
  for (std::size_t s = 0; s < slices; ++s) sum += slice_sums[s];
  const float unscale = scaled ? scalars->inverse_scale : 1;
  scalars->clipped_norm = std::sqrt(sum) * static_cast<double>(unscale);
  scalars->inverse_scale = unscale * optim::clip_factor(scalars->clipped_norm, limit);
}

__global__ void __launch_bounds__(block_threads) update_averages_kernel(AverageArgs args) {
  const std::size_t i = thread_index() * quad;
  if (i >= args.count || !args.scalars->apply) return;
  const float share = args.scalars->step.average_share;
  float w[quad], average[quad];
  load(args.weights + i, w);
  load(args.averages + i, average);
#pragma unroll
  for (int k = 0; k < quad; ++k) average[k] = optim::averaged(average[k], w[k], share);
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

void lamb_moments(const UpdateArgs& args, const LambArgs& lamb, cudaStream_t stream) {
  if (args.chunk_count == 0) return;
  launch("lamb_moments_kernel", lamb_moments_kernel, static_cast<unsigned>(args.chunk_count),
         block_threads, stream, args, lamb);
}

void lamb_update(const UpdateArgs& args, const LambArgs& lamb, cudaStream_t stream) {
  if (args.chunk_count == 0) return;
  const auto blocks = static_cast<unsigned>(args.chunk_count);
  with_copies(args.copies, args.storage, [&]<class T, bool copies>() {
    launch("lamb_kernel", lamb_kernel<T, copies>, blocks, block_threads, stream, args, lamb);
  });
}

void gather_trust(const float* ratios, std::size_t slices, DeviceScalars* scalars,
                  cudaStream_t stream) {
  launch("gather_trust_kernel", gather_trust_kernel, 1, block_threads, stream, ratios, slices,
         scalars);
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
