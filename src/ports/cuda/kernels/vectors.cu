#include <algorithm>
#include <bit>

#include "ports/cuda/kernels/vector.cuh"

// Casts and arithmetic on vectors of any format, products of matrices. A block of threads takes a
// block of values, so that the values of 8 bits that share a scale meet in it.
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

// ---- matrices: sums in an order that does not depend on the threads' order ----------------------

using backend::most_width;
using backend::Thin;

/// Of the block's values, on each of its threads.
template <class T>
__device__ T block_sum(T value) {
  __shared__ T sums[block_threads];
  __syncthreads();  // all have read the last call's sum
  sums[threadIdx.x] = value;
  for (unsigned half = block_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  return sums[0];
}

__device__ float& value_of(const backend::Matrix& matrix, std::size_t row, std::size_t column) {
  const nn::MatrixForm& form = matrix.form;
  return matrix
      .data[row / form.panel * form.panel_stride + row % form.panel + column * form.column_stride];
}

/// A block of threads for each row.
__global__ void __launch_bounds__(block_threads)
    multiply_kernel(backend::Matrix matrix, Thin columns, Thin product) {
  const std::size_t row = blockIdx.x;
  float sums[most_width] = {};
  for (std::size_t c = threadIdx.x; c < columns.length; c += block_threads) {
    const float value = value_of(matrix, row, c);
    for (std::size_t k = 0; k < columns.width; ++k)
      sums[k] += value * columns.data[k * columns.length + c];
  }
  for (std::size_t k = 0; k < columns.width; ++k) {
    const float sum = block_sum(sums[k]);
    if (threadIdx.x == 0) product.data[k * product.length + row] = sum;
  }
}

constexpr unsigned tile_columns = 32, tile_parts = block_threads / tile_columns;

/// A block of threads for each tile_columns columns; each takes a part of the rows.
__global__ void __launch_bounds__(block_threads)
    multiply_transposed_kernel(backend::Matrix matrix, Thin rows, Thin product) {
  __shared__ float parts[block_threads];
  const std::size_t column = blockIdx.x * tile_columns + threadIdx.x % tile_columns;
  const bool inside = column < product.length;
  float sums[most_width] = {};
  for (std::size_t r = threadIdx.x / tile_columns; inside && r < rows.length; r += tile_parts) {
    const float value = value_of(matrix, r, column);
    for (std::size_t k = 0; k < rows.width; ++k) sums[k] += value * rows.data[k * rows.length + r];
  }
  for (std::size_t k = 0; k < rows.width; ++k) {
    __syncthreads();  // all have read the last vector's parts
    parts[threadIdx.x] = sums[k];
    __syncthreads();
    if (threadIdx.x >= tile_columns || !inside) continue;
    float sum = 0;
    for (unsigned part = 0; part < tile_parts; ++part)
      sum += parts[part * tile_columns + threadIdx.x];
    product.data[k * product.length + column] = sum;
  }
}

__global__ void __launch_bounds__(block_threads)
    add_product_kernel(float keep, float factor, Thin rows, Thin columns, backend::Matrix to) {
  const std::size_t i = thread_index();
  if (i >= rows.length * columns.length) return;
  const std::size_t row = i / columns.length, column = i % columns.length;
  float sum = 0;
  for (std::size_t k = 0; k < rows.width; ++k)
    sum += rows.data[k * rows.length + row] * columns.data[k * columns.length + column];
  float& value = value_of(to, row, column);
  value = keep == 0 ? factor * sum : keep * value + factor * sum;
}

/// By one block of threads.
__device__ double block_dot(const float* a, const float* b, std::size_t count) {
  double sum = 0;
  for (std::size_t i = threadIdx.x; i < count; i += block_threads)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return block_sum(sum);
}

/// Takes from vector k what it has of those before it, twice, and returns its length.
__device__ double project_out(const Thin& vectors, std::size_t k) {
  float* mine = vectors.data + k * vectors.length;
  for (int time = 0; time < 2; ++time)
    for (std::size_t j = 0; j < k; ++j) {
      const float* other = vectors.data + j * vectors.length;
      const auto share = static_cast<float>(block_dot(mine, other, vectors.length));
      for (std::size_t i = threadIdx.x; i < vectors.length; i += block_threads)
        mine[i] -= share * other[i];
    }
  return std::sqrt(block_dot(mine, mine, vectors.length));
}

/// Each thread has numbers of a vector that no other one touches.
__global__ void __launch_bounds__(block_threads) orthogonalise_kernel(Thin vectors) {
  for (std::size_t k = 0; k < vectors.width; ++k) {
    float* mine = vectors.data + k * vectors.length;
    const double before = std::sqrt(block_dot(mine, mine, vectors.length));
    double length = project_out(vectors, k);
    if (length <= backend::arithmetic::dependent_share * before) {
      for (std::size_t i = threadIdx.x; i < vectors.length; i += block_threads)
        mine[i] = backend::arithmetic::stand_in(k, i);
      length = project_out(vectors, k);
    }
    const float factor = k < vectors.length ? static_cast<float>(1 / length) : 0;
    for (std::size_t i = threadIdx.x; i < vectors.length; i += block_threads) mine[i] *= factor;
  }
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

void multiply(const backend::Matrix& matrix, const Thin& columns, const Thin& product,
              cudaStream_t stream) {
  launch("multiply_kernel", multiply_kernel, static_cast<unsigned>(product.length), block_threads,
         stream, matrix, columns, product);
}

void multiply_transposed(const backend::Matrix& matrix, const Thin& rows, const Thin& product,
                         cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((product.length + tile_columns - 1) / tile_columns);
  launch("multiply_transposed_kernel", multiply_transposed_kernel, blocks, block_threads, stream,
         matrix, rows, product);
}

void add_product(float keep, float factor, const Thin& rows, const Thin& columns,
                 const backend::Matrix& to, cudaStream_t stream) {
  launch("add_product_kernel", add_product_kernel, blocks_for(rows.length * columns.length),
         block_threads, stream, keep, factor, rows, columns, to);
}

void orthogonalise(const Thin& vectors, cudaStream_t stream) {
  launch("orthogonalise_kernel", orthogonalise_kernel, 1, block_threads, stream, vectors);
}

}  // namespace lockstep::cuda
