#pragma once

#include <cstddef>

#include "lockstep/backend/rates.hpp"
#include "ports/cuda/device.hpp"
#include "ports/cuda/plan/conv_engines.hpp"

namespace lockstep::cuda {

/// Measures rates, each the best of some runs: a copy within the device's memory (bytes read and
/// written), and cuDNN's product of matrices of random numbers, [32 * channels, channels] by
/// [channels, channels], in each precision. `channels`: a multiple of 32; with the usual value this
/// takes about 1.1 GB of device memory for the time being.
backend::GpuRates measure_rates(CudaDevice& device, ConvPlanner& planner,
                                std::size_t channels = 2048);

}  // namespace lockstep::cuda
