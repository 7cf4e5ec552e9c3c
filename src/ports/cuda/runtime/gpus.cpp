#include "lockstep/device/gpus.hpp"

#include <array>

#include <cuda_runtime.h>
#include <cudnn.h>
#include <fmt/format.h>
#include <nccl.h>

#include "ports/cuda/device.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::device {
namespace {

// The first cuDNN whose graph API lockstep can use, and the first NCCL with a non-blocking start
// that another thread can end.
constexpr std::size_t oldest_cudnn = 90000;
constexpr int oldest_nccl = 21800;

std::string cuda_version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

std::string cudnn_version(std::size_t number) {
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

std::string nccl_version(int number) {
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

/// Why there is no device; empty if there is one. `driver`: the newest CUDA that it supports, 0 for
/// no driver.
std::string lack_of_devices(int driver, cudaError_t status, int count) {
  if (driver == 0) return "this machine has no NVIDIA driver (libcuda.so.1)";
  if (status == cudaErrorInsufficientDriver)
    return fmt::format(
        "the NVIDIA driver supports CUDA up to {}, but lockstep was built with CUDA {}: install "
        "a newer driver, or build with an older toolkit (CUDA_HOME=folder)",
        cuda_version(driver), cuda_version(CUDART_VERSION));
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
    return "the NVIDIA driver shows no device to this process (see CUDA_VISIBLE_DEVICES, and what "
           "the scheduler was asked for)";
  if (status != cudaSuccess)
    return fmt::format("the NVIDIA driver does not work: {} ({})", cudaGetErrorString(status),
                       cudaGetErrorName(status));
  return "";
}

std::string lack_of_libraries(std::size_t cudnn, int nccl) {
  if (cudnn < oldest_cudnn)
    return fmt::format("cuDNN {} was found; lockstep needs {} or newer", cudnn_version(cudnn),
                       cudnn_version(oldest_cudnn));
  if (nccl < oldest_nccl)
    return fmt::format("NCCL {} was found; lockstep needs {} or newer", nccl_version(nccl),
                       nccl_version(oldest_nccl));
  return "";
}

device::VisibleGpu look_at(int ordinal, std::string& lack) {
  cudaDeviceProp properties{};
  cuda::check_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  lack = cuda::lack_of_kernels(properties, ordinal);
  std::array<char, 32> bus{};
  cuda::check_cuda(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), ordinal),
                   "cudaDeviceGetPCIBusId");
  return {properties.name, bus.data(), properties.totalGlobalMem};
}

}  // namespace

device::VisibleGpus look_at_gpus() {
  device::VisibleGpus seen;
  seen.libraries = fmt::format("CUDA {}", cuda_version(CUDART_VERSION));
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();  // clears the error, or a later call would report it
  seen.absence = lack_of_devices(driver, status, count);
  if (!seen.absence.empty()) return seen;

  // Only now: if libraries that cuDNN opens on its own are missing, this call ends the program.
  const std::size_t cudnn = cudnnGetVersion();
  int nccl = 0;
  if (ncclGetVersion(&nccl) != ncclSuccess) nccl = 0;
  seen.libraries += fmt::format(", driver for {}, cuDNN {}, NCCL {}", cuda_version(driver),
                                cudnn_version(cudnn), nccl_version(nccl));
  seen.absence = lack_of_libraries(cudnn, nccl);
  std::string too_old;
  for (int ordinal = 0; seen.absence.empty() && ordinal < count; ++ordinal) {
    std::string lack;
    seen.gpus.push_back(look_at(ordinal, lack));
    if (ordinal == 0 || lack.empty()) too_old = lack;
  }
  if (too_old.empty()) return seen;
  seen.gpus.clear();
  seen.absence = too_old;
  return seen;
}

}  // namespace lockstep::device
