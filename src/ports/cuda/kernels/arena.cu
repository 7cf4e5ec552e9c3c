#include "lockstep/optim/sgd.hpp"

#include "ports/cuda/kernels/update.cuh"

// Kernels over the whole arena: the update, the running statistics, the words of a step.
namespace lockstep::cuda {

namespace {

__global__ void set_step_kernel(DeviceScalars* scalars, optim::StepScalars step) {
  scalars->step = step;
}

template <class T, bool copies>
__global__ void __launch_bounds__(block_threads) sgd_kernel(UpdateArgs args) {
  if (!args.scalars->apply) return;
  const Chunk chunk = args.chunks[args.first_chunk + blockIdx.x];
  const optim::SgdRule rule{rate_of(args, chunk), args.momentum, args.weight_decay[chunk.slice],
                            args.nesterov};
  update_chunk<T, copies>(
      args, chunk, rule,
      [](const optim::SgdRule& by, float g, float& w, float& v) { optim::sgd(by, g, w, v); });
}

__global__ void __launch_bounds__(block_threads) running_statistics_kernel(StatisticsArgs args) {
  if (!args.scalars->apply) return;
  const Chunk chunk = args.chunks[args.first_chunk + blockIdx.x];
  const float kept = args.kept[chunk.slice];
  float running[quad], fresh[quad];
  for (std::uint32_t i = threadIdx.x * quad; i < chunk.count; i += block_threads * quad) {
    const std::size_t at = chunk.offset + i;
    load(args.running + at, running);
    load(args.fresh + at, fresh);
#pragma unroll
    for (int k = 0; k < quad; ++k)
      running[k] = backend::arithmetic::running_statistic(kept, running[k], fresh[k]);
    store(args.running + at, running);
  }
}

template <class T>
__global__ void convert_kernel(const float* from, std::size_t count, T* to) {
  const std::size_t i = thread_index() * quad;
  if (i >= count) return;
  float v[quad];
  load(from + i, v);
  store(to + i, v);
}

template <class T>
__global__ void add_kernel(const T* from, std::size_t count, bool accumulate, float* to) {
  const std::size_t i = thread_index() * quad;
  if (i >= count) return;
  float v[quad], before[quad] = {};
  load(from + i, v);
  if (accumulate) load(to + i, before);
#pragma unroll
  for (int k = 0; k < quad; ++k) v[k] += before[k];
  store(to + i, v);
}

__global__ void put_aside_kernel(DeviceMetrics* metrics, const DeviceScalars* scalars,
                                 StepWords* there) {
  there->scalars = *scalars;
  there->metrics = metrics ? *metrics : DeviceMetrics{};
  if (metrics) *metrics = {};
}

__device__ void show(std::uint64_t* place, std::uint64_t number) {
  *static_cast<volatile std::uint64_t*>(place) = number;
  __threadfence_system();
}

__global__ void light_beacon_kernel(Beacon beacon, std::uint64_t number) {
  *beacon.newest = number;
  show(beacon.place, number);
}

__global__ void raise_beacon_kernel(Beacon beacon, std::uint64_t more) {
  show(beacon.place, *beacon.newest + more);
}

}  // namespace

void set_scalars(DeviceScalars* scalars, const optim::StepScalars& step, cudaStream_t stream) {
  // As a kernel's argument the values need no pinned slot that has to be guarded.
  launch("set_step_kernel", set_step_kernel, 1, 1, stream, scalars, step);
}

void sgd_update(const UpdateArgs& args, cudaStream_t stream) {
  if (args.chunk_count == 0) return;
  const auto blocks = static_cast<unsigned>(args.chunk_count);
  with_copies(args.copies, args.storage, [&]<class T, bool copies>() {
    launch("sgd_kernel", sgd_kernel<T, copies>, blocks, block_threads, stream, args);
  });
}

void update_running_statistics(const StatisticsArgs& args, cudaStream_t stream) {
  if (args.chunk_count == 0) return;
  launch("running_statistics_kernel", running_statistics_kernel,
         static_cast<unsigned>(args.chunk_count), block_threads, stream, args);
}

void convert_weights(const float* from, std::size_t count, Storage storage, void* to,
                     cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    launch("convert_kernel", convert_kernel<T>, blocks_for(count / quad), block_threads, stream,
           from, count, static_cast<T*>(to));
  });
}

void add_gradient(const void* from, std::size_t count, Storage storage, bool accumulate, float* to,
                  cudaStream_t stream) {
  with_type(storage, [&]<class T>(T) {
    launch("add_kernel", add_kernel<T>, blocks_for(count / quad), block_threads, stream,
           static_cast<const T*>(from), count, accumulate, to);
  });
}

void put_aside(DeviceMetrics* metrics, const DeviceScalars* scalars, StepWords* there,
               cudaStream_t stream) {
  launch("put_aside_kernel", put_aside_kernel, 1, 1, stream, metrics, scalars, there);
}

void light_beacon(const Beacon& beacon, std::uint64_t number, cudaStream_t stream) {
  launch("light_beacon_kernel", light_beacon_kernel, 1, 1, stream, beacon, number);
}

void raise_beacon(const Beacon& beacon, std::uint64_t more, cudaStream_t stream) {
  launch("raise_beacon_kernel", raise_beacon_kernel, 1, 1, stream, beacon, more);
}

}  // namespace lockstep::cuda
