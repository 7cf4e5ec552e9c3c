#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <utility>

#include "ports/cuda/kernels/kernels.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::cuda {

__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(__half v) { return __half2float(v); }
__device__ inline float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }

template <class T>
__device__ T rounded(float v);
template <>
__device__ inline float rounded<float>(float v) {
  return v;
}
template <>
__device__ inline __half rounded<__half>(float v) {
  return __float2half_rn(v);
}
template <>
__device__ inline __nv_bfloat16 rounded<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}

/// How many values one 16-byte access holds.
template <class T>
constexpr int width = 16 / sizeof(T);

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

/// N values from `p`, which is aligned to all of them, in one access.
template <int N, class T>
__device__ Pack<T, N> access(const T* p) {
  return *reinterpret_cast<const Pack<T, N>*>(p);
}

template <class T, int N>
__device__ void unpack(const Pack<T, N>& pack, float (&out)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = to_float(pack.v[i]);
}

template <class T, int N>
__device__ void load(const T* p, float (&out)[N]) {
  unpack(access<N>(p), out);
}

/// N (a multiple of 4) floats from `p`, which is aligned to four of them.
template <int N>
__device__ void load_floats(const float* p, float (&out)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const Pack<float, 4> four = access<4>(p + i);
#pragma unroll
    for (int k = 0; k < 4; ++k) out[i + k] = four.v[k];
  }
}

/// Returns what it wrote.
template <class T, int N>
__device__ Pack<T, N> store(T* p, const float (&values)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.v[i] = rounded<T>(values[i]);
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
  return pack;
}

/// Calls body(T{}) with the type for `storage`.
template <class Body>
void with_type(Storage storage, const Body& body) {
  switch (storage) {
    case Storage::fp32:
      return body(float{});
    case Storage::bf16:
      return body(__nv_bfloat16{});
    case Storage::fp16:
      return body(__half{});
  }
}

/// Puts a kernel into a stream. It does not use <<<>>>, so that any C++ compiler can read these
/// sources: tests/emulated runs them on the host. Throws Error naming the kernel when the launch
/// itself fails; an error while the kernel runs is reported by the next call that waits.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  check_cuda(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name);
}

constexpr unsigned block_threads = 256;

/// Blocks of block_threads that run at once: three on each of an H200's 132 processors.
constexpr unsigned blocks_each = 3, blocks_at_once = blocks_each * 132;

/// Blocks of block_threads for the work of `count` threads. At least one block, because a launch
/// without blocks is an error.
inline unsigned blocks_for(std::size_t count) {
  return static_cast<unsigned>(count == 0 ? 1 : (count + block_threads - 1) / block_threads);
}

__device__ inline std::size_t thread_index() {
  return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

}  // namespace lockstep::cuda
