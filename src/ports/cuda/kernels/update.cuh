#pragma once

#include "lockstep/optim/sgd.hpp"
#include "ports/cuda/kernels/vector.cuh"

// What the kernels over the arena share.
namespace lockstep::cuda {

constexpr int quad = 4;  // floats in one access

__device__ inline float rate_of(const UpdateArgs& args, const Chunk& chunk) {
  const float lr = args.scalars->step.lr;
  return args.rates ? lr * args.rates[chunk.slice] : lr;
}

/// One block's part of an update: `formula` for each weight of a chunk, and the weights' copies.
template <class T, bool copies, class Formula>
__device__ void update_chunk(const UpdateArgs& args, const Chunk& chunk, const optim::SgdRule& rule,
                             const Formula& formula) {
  const float unscale = args.scalars->inverse_scale;
  float g[quad], w[quad], v[quad];
  for (std::uint32_t i = threadIdx.x * quad; i < chunk.count; i += block_threads * quad) {
    const std::size_t at = chunk.offset + i;
    load(args.gradients + at, g);
    load(args.weights + at, w);
    load(args.velocities + at, v);
#pragma unroll
    for (int k = 0; k < quad; ++k) formula(rule, g[k] * unscale, w[k], v[k]);
    store(args.weights + at, w);
    store(args.velocities + at, v);
    if constexpr (copies) store(static_cast<T*>(args.copies) + at, w);
  }
}

/// Calls body.operator()<T, copies>() for weights whose copies, if there are any, have this form.
template <class Body>
void with_copies(const void* copies, Storage storage, const Body& body) {
  if (copies)
    with_type(storage, [&]<class T>(T) { body.template operator()<T, true>(); });
  else
    body.template operator()<float, false>();
}

}  // namespace lockstep::cuda
