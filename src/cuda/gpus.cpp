#include "lockstep/device/gpus.hpp"

#include <array>

#include <cuda_runtime.h>
#include <cudnn.h>
#include <fmt/format.h>
#include <nccl.h>

#include "cuda/check.hpp"

namespace lockstep {
namespace {

// The first cuDNN whose graph API lockstep uses, and the first NCCL with a non-blocking start that
// can be ended from another thread.
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

struct Versions {
  int driver = 0;  ///< the newest CUDA that the driver serves; 0 without a driver
  std::size_t cudnn = 0;
  int nccl = 0;
};

Versions ask_versions() {
  Versions versions;
  if (cudaDriverGetVersion(&versions.driver) != cudaSuccess) versions.driver = 0;
  versions.cudnn = cudnnGetVersion();
  if (ncclGetVersion(&versions.nccl) != ncclSuccess) versions.nccl = 0;
  return versions;
}

std::string describe(const Versions& versions) {
  return fmt::format(
      "CUDA {}, {}, cuDNN {}, NCCL {}", cuda_version(CUDART_VERSION),
      versions.driver == 0 ? "no driver" : "driver for " + cuda_version(versions.driver),
      cudnn_version(versions.cudnn), nccl_version(versions.nccl));
}

/// Why no device can be used, given what the count of devices came to.
std::string absence(const Versions& versions, cudaError_t status, int count) {
  if (versions.driver == 0) return "this machine has no NVIDIA driver (libcuda.so.1)";
  if (status == cudaErrorInsufficientDriver)
    return fmt::format(
        "the NVIDIA driver serves CUDA up to {}, and this lockstep was built with CUDA {}: install "
        "a newer driver, or build with an older toolkit (CUDA_HOME=folder)",
        cuda_version(versions.driver), cuda_version(CUDART_VERSION));
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
    return "the NVIDIA driver shows no device to this process (see CUDA_VISIBLE_DEVICES, and what "
           "the scheduler was asked for)";
  if (status != cudaSuccess)
    return fmt::format("the NVIDIA driver does not work: {} ({})", cudaGetErrorString(status),
                       cudaGetErrorName(status));
  if (versions.cudnn < oldest_cudnn)
    return fmt::format("cuDNN {} was found; lockstep needs {} or newer",
                       cudnn_version(versions.cudnn), cudnn_version(oldest_cudnn));
  if (versions.nccl < oldest_nccl)
    return fmt::format("NCCL {} was found; lockstep needs {} or newer", nccl_version(versions.nccl),
                       nccl_version(oldest_nccl));
  return "";
}

VisibleGpu look_at(int ordinal) {
  cudaDeviceProp properties{};
  cuda::check_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  std::array<char, 32> bus{};
  cuda::check_cuda(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), ordinal),
                   "cudaDeviceGetPCIBusId");
  return {properties.name, bus.data(), properties.totalGlobalMem};
}

}  // namespace

VisibleGpus look_at_gpus() {
  const Versions versions = ask_versions();
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();  // it would come up again at a later call
  VisibleGpus seen;
  seen.libraries = describe(versions);
  seen.absence = absence(versions, status, count);
  if (seen.absence.empty())
    for (int ordinal = 0; ordinal < count; ++ordinal) seen.gpus.push_back(look_at(ordinal));
  return seen;
}

}  // namespace lockstep
