#include <algorithm>
#include <bit>

#include "ports/cuda/kernels/vector.cuh"

// Casts and arithmetic on vectors of any format. A block of threads takes a block of values, so
// that the values of 8 bits that share a scale meet in it.
namespace lockstep::cuda {

namespace {

using backend::Vector;
using comm::ElementType;

static_assert(backend::arithmetic::scale_block == block_threads);

/// The largest of the block's bits, on each of its threads.
__device__ std::uint32_t block_largest(std::uint32_t bits) {
  __shared__ std::uint32_t most[block_threads];
  __syncthreads();  // all have read the old scale, and the last call's values
  most[threadIdx.x] = bits;
  for (unsigned half = block_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half && most[threadIdx.x + half] > most[threadIdx.x])
      most[threadIdx.x] = most[threadIdx.x + half];
  }
  __syncthreads();
  return most[0];
}

/// 0 after the vector's end.
__device__ float value_at(const Vector& vector, std::size_t i) {
  if (i >= vector.count) return 0;
  switch (vector.type) {
    case ElementType::f16:
      return to_float(static_cast<const __half*>(vector.data)[i]);
    case ElementType::bf16:
      return to_float(static_cast<const __nv_bfloat16*>(vector.data)[i]);
    case ElementType::i8:
      return backend::arithmetic::from_i8(static_cast<const std::int8_t*>(vector.data)[i],
                                          vector.scales[i / block_threads]);
    default:
      return static_cast<const float*>(vector.data)[i];
  }
}

/// All threads of the block call it.
__device__ void put_values(const Vector& vector, std::size_t i, float value) {
  const bool inside = i < vector.count;
  switch (vector.type) {
    case ElementType::f16:
      if (inside) static_cast<__half*>(vector.data)[i] = rounded<__half>(value);
      return;
    case ElementType::bf16:
      if (inside) static_cast<__nv_bfloat16*>(vector.data)[i] = rounded<__nv_bfloat16>(value);
      return;
    case ElementType::i8: {
      const std::uint32_t largest = block_largest(backend::arithmetic::magnitude_bits(value));
      const float scale = backend::arithmetic::block_scale(std::bit_cast<float>(largest));
      if (threadIdx.x == 0) vector.scales[blockIdx.x] = scale;
      if (inside)
        static_cast<std::int8_t*>(vector.data)[i] =
            backend::arithmetic::to_i8(value, backend::arithmetic::inverse_of(scale));
      return;
    }
    default:
      if (inside) static_cast<float*>(vector.data)[i] = value;
  }
}

__global__ void __launch_bounds__(block_threads) cast_kernel(Vector from, Vector to) {
  const std::size_t i = thread_index();
  put_values(to, i, value_at(from, i));
}

__global__ void __launch_bounds__(block_threads)
    add_vector_kernel(float factor, Vector from, Vector to) {
  const std::size_t i = thread_index();
  put_values(to, i, value_at(to, i) + factor * value_at(from, i));
}

__global__ void __launch_bounds__(block_threads) scale_vector_kernel(float factor, Vector values) {
  const std::size_t i = thread_index();
  put_values(values, i, factor * value_at(values, i));
}

__global__ void __launch_bounds__(block_threads)
    select_kernel(Vector values, float share, const float* bound) {
  const std::size_t i = thread_index();
  const float value = backend::arithmetic::selected(value_at(values, i), share * *bound);
  put_values(values, i, value);
}

__global__ void clear_kernel(float* value) { *value = 0; }

// As integers, magnitudes have the order of the values, and no order of threads changes a maximum.
__global__ void __launch_bounds__(block_threads) largest_kernel(Vector values, float* found) {
  std::uint32_t most = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * block_threads;
  for (std::size_t i = thread_index(); i < values.count; i += step) {
    const std::uint32_t bits = backend::arithmetic::magnitude_bits(value_at(values, i));
    most = bits > most ? bits : most;
  }
  most = block_largest(most);
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<unsigned*>(found), most);
}

}  // namespace

void cast_vector(const Vector& from, const Vector& to, cudaStream_t stream) {
  launch("cast_kernel", cast_kernel, blocks_for(from.count), block_threads, stream, from, to);
}

void add_vector(float factor, const Vector& from, const Vector& to, cudaStream_t stream) {
  launch("add_vector_kernel", add_vector_kernel, blocks_for(from.count), block_threads, stream,
         factor, from, to);
}

void scale_vector(float factor, const Vector& values, cudaStream_t stream) {
  // Of 8-bit values only the scales change.
  const Vector scaled = values.type == ElementType::i8
                            ? backend::vector(values.scales, backend::scales_of(values.count))
                            : values;
  launch("scale_vector_kernel", scale_vector_kernel, blocks_for(scaled.count), block_threads,
         stream, factor, scaled);
}

void largest_value(const Vector& values, float* found, cudaStream_t stream) {
  constexpr std::size_t most_blocks = 1056;
  launch("clear_kernel", clear_kernel, 1, 1, stream, found);
  launch("largest_kernel", largest_kernel,
         static_cast<unsigned>(std::min<std::size_t>(most_blocks, blocks_for(values.count))),
         block_threads, stream, values, found);
}

void select_values(const Vector& values, float share, const float* bound, cudaStream_t stream) {
  launch("select_kernel", select_kernel, blocks_for(values.count), block_threads, stream, values,
         share, bound);
}

}  // namespace lockstep::cuda
