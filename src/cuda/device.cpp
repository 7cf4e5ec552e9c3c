#include "cuda/device.hpp"

#include <fmt/format.h>

#include "cuda/check.hpp"
#include "lockstep/backend/backend.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::cuda {

namespace {

constexpr int oldest_architecture = 8;  // sm_80: what the kernels are compiled for at least

}  // namespace

DeviceBuffer::DeviceBuffer(std::size_t bytes, const char* what) : size_(bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes == 0 ? 1 : bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it would come up again at the next kernel's launch
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    throw InputError(fmt::format(
        "{}: {:.2f} GB do not fit into the GPU's memory: {:.2f} of {:.2f} GB are free. Use a "
        "smaller batch or --accumulate",
        what, static_cast<double>(bytes) / 1e9, static_cast<double>(free) / 1e9,
        static_cast<double>(total) / 1e9));
  }
  check_cuda(status, "cudaMalloc");
  memory_ = decltype(memory_)(memory);
}

int CudaDevice::made_current(int ordinal) {
  check_cuda(cudaSetDevice(ordinal), "cudaSetDevice");
  return ordinal;
}

CudaDevice::CudaDevice(int ordinal) : ordinal_(made_current(ordinal)) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  name_ = properties.name;
  require(properties.major >= oldest_architecture,
          fmt::format("GPU {} is a {} of compute capability {}.{}; lockstep needs {}.0 (A100) or "
                      "newer",
                      ordinal, name_, properties.major, properties.minor, oldest_architecture));
}

PinnedBuffer CudaDevice::allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  check_cuda(cudaHostAlloc(&data, bytes == 0 ? 1 : bytes, cudaHostAllocPortable), "cudaHostAlloc");
  return {static_cast<std::byte*>(data), bytes, [](std::byte* p) { cudaFreeHost(p); }};
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver, or one that is too old: the CPU backend serves
  return 0;
}

}  // namespace lockstep::cuda
