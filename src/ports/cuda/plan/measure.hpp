#pragma once

#include <cstddef>

#include "lockstep/backend/rates.hpp"
#include "ports/cuda/device.hpp"
#include "ports/cuda/plan/engines/conv_engines.hpp"

namespace lockstep::cuda {

/// Measures rates, each the best of some runs: a copy within the device's memory (bytes read and
/// written), and cuDNN's product of matrices of random numbers, [32 * channels, channels] by
/// [channels, channels], in each precision. `channels`: a multiple of 32; with the usual value this
/// takes about 1.1 GB of device memory for the time being.
backend::GpuRates measure_rates(CudaDevice& device, ConvPlanner& planner,
                                std::size_t channels = 2048);

/// Times plans, and the kernels that fused plans save. Its operands lie in memory that grows with
/// the largest request so far: inputs of random numbers, and separate outputs, so that every run
/// reads numbers of a training's size.
class PlanTimer {
 public:
  explicit PlanTimer(CudaDevice& device) : device_(device) {}
  /// The seconds of the fastest of some runs. Throws Error where the plan cannot run, InputError
  /// where its memory does not fit.
  double seconds(const ConvRequest& request, const ConvPlan& plan);
  double seconds(NormPart part, const Matrix& shape, Storage storage);

 private:
  std::byte* room(DeviceBuffer& buffer, std::size_t bytes);

  CudaDevice& device_;
  DeviceBuffer inputs_, outputs_, workspace_;
};

}  // namespace lockstep::cuda
