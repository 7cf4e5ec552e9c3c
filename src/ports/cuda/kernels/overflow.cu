#include <algorithm>

#include "lockstep/optim/loss_scale.hpp"
#include "ports/cuda/kernels/update.cuh"

// Whether a step counts: an infinity or NaN among fp16's gradients means that it is skipped and
// that the loss scale shrinks.
namespace lockstep::cuda {

namespace {

__global__ void set_loss_scale_kernel(DeviceScalars* scalars, backend::LossScale scale) {
  scalars->loss_scale = scale;
  scalars->inverse_scale = 1 / scale.scale;
  scalars->overflow = 0;
  scalars->apply = 1;
}

// Every thread that finds an overflow writes the same 1, so their order does not matter.
__global__ void __launch_bounds__(block_threads)
    find_overflow_kernel(const float* gradients, std::size_t count, DeviceScalars* scalars) {
  bool found = false;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * block_threads * quad;
  for (std::size_t i = thread_index() * quad; i < count; i += step) {
    float g[quad];
    load(gradients + i, g);
#pragma unroll
    for (int k = 0; k < quad; ++k) found = found || backend::arithmetic::overflowed(g[k]);
  }
  if (__syncthreads_or(found) && threadIdx.x == 0) scalars->overflow = 1;
}

__global__ void find_overflow_in_one_kernel(const float* largest, DeviceScalars* scalars) {
  if (backend::arithmetic::overflowed(*largest)) scalars->overflow = 1;
}

__global__ void judge_kernel(DeviceScalars* scalars) {
  const bool overflow = scalars->overflow != 0;
  scalars->apply = overflow ? 0 : 1;
  scalars->inverse_scale = 1 / scalars->loss_scale.scale;
  scalars->loss_scale = optim::after_step(scalars->loss_scale, overflow);
  scalars->overflow = 0;
}

}  // namespace

void set_loss_scale(DeviceScalars* scalars, const backend::LossScale& scale, cudaStream_t stream) {
  launch("set_loss_scale_kernel", set_loss_scale_kernel, 1, 1, stream, scalars, scale);
}

void judge(const float* gradients, std::size_t count, DeviceScalars* scalars, cudaStream_t stream) {
  constexpr unsigned most_blocks = 1056;
  const unsigned blocks = std::min(most_blocks, blocks_for(count / quad));
  launch("find_overflow_kernel", find_overflow_kernel, blocks, block_threads, stream, gradients,
         count, scalars);
  launch("judge_kernel", judge_kernel, 1, 1, stream, scalars);
}

void judge_by(const float* largest, DeviceScalars* scalars, cudaStream_t stream) {
  launch("find_overflow_in_one_kernel", find_overflow_in_one_kernel, 1, 1, stream, largest,
         scalars);
  launch("judge_kernel", judge_kernel, 1, 1, stream, scalars);
}

}  // namespace lockstep::cuda
