#pragma once

// CUDA's language as a library: included before each kernel source, it lets a C++ compiler make
// host code of it. It does not model the hardware but CUDA's promises: where they leave the order
// open, the test chooses one, and what they forbid throws.

#include <cuda_runtime.h>
#include <math.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <type_traits>

namespace lockstep::emulated {

/// Which thread of a block, and which block of a grid, goes first where CUDA leaves it open.
enum class Order { forward, reverse, shuffled };
/// When streams do their work: as soon as it is put in, only when the host waits for it, or then
/// but after all other streams have done what they can.
enum class Streams { eager, late, others_first };

/// Conditions for the next kernels and copies; tests set them.
struct Conditions {
  Order order = Order::forward;
  Streams streams = Streams::eager;
  std::size_t memory = std::size_t{1} << 32;  ///< the device's, in bytes
  int driver = CUDART_VERSION;                ///< the newest CUDA that it supports; 0: no driver
  int devices = 1, major = 9;                 ///< major: of the compute capability
  std::size_t cudnn = 91900;
  int nccl = 22800;
};
Conditions& conditions();

/// What the host has done so far.
struct Counts {
  std::size_t calls = 0;     ///< work put into streams that did not record
  std::size_t recorded = 0;  ///< graphs
  std::size_t launches = 0;  ///< of graphs
  std::size_t waits = 0;     ///< calls in which the host may wait for the device
};
Counts& counts();

/// Runs one thread after the other, each until its next barrier. Throws Error when threads would
/// wait for ever, at different barriers or for one that has ended.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel);
/// Puts work into a stream.
void enqueue(cudaStream_t stream, std::function<void()> work);
/// Whether [data, data + bytes) is inside one allocation on the device.
bool on_device(const void* data, std::size_t bytes);

/// At a barrier each thread gives a value to the others; meet_warp() returns that of lane (own lane
/// ^ xor_lane).
constexpr int warp_lanes = 32;
int meet_block(int value, const std::source_location& where);
std::uint64_t meet_warp(unsigned lanes, std::uint64_t value, int xor_lane,
                        const std::source_location& where);

template <class... Parameters, class... Arguments>
cudaError_t launch(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                   Arguments&&... arguments) {
  const dim3 grid = config->gridDim, block = config->blockDim;
  if (grid.x * grid.y * grid.z == 0 || block.x * block.y * block.z == 0 || grid.y > 65535 ||
      block.x * block.y * block.z > 1024)
    return cudaErrorInvalidConfiguration;
  enqueue(config->stream,
          [=] { run_grid(grid, block, [&] { kernel(Parameters(arguments)...); }); });
  return cudaSuccess;
}

}  // namespace lockstep::emulated

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

inline void __syncthreads(const std::source_location& where = std::source_location::current()) {
  lockstep::emulated::meet_block(0, where);
}
inline int __syncthreads_or(int value,
                            const std::source_location& where = std::source_location::current()) {
  return lockstep::emulated::meet_block(value != 0, where);
}
inline void __syncwarp(unsigned lanes = 0xffffffffu,
                       const std::source_location& where = std::source_location::current()) {
  lockstep::emulated::meet_warp(lanes, 0, 0, where);
}
// One thread runs at a time.
inline void __threadfence_system() {}
inline void __threadfence() {}
inline unsigned atomicInc(unsigned* place, unsigned last) {
  const unsigned old = *place;
  *place = old >= last ? 0 : old + 1;
  return old;
}
inline unsigned atomicMax(unsigned* place, unsigned value) {
  const unsigned old = *place;
  if (value > old) *place = value;
  return old;
}
template <class T>
T __ldcg(const T* place) {
  return *place;
}
template <class T>
T __shfl_xor_sync(unsigned lanes, T value, int xor_lane,
                  const std::source_location& where = std::source_location::current()) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = lockstep::emulated::meet_warp(lanes, bits, xor_lane, where);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Blocks run one after another, so one copy of a block's memory is enough.
#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)
#define cudaLaunchKernelEx lockstep::emulated::launch
