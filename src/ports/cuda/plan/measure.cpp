#include "ports/cuda/plan/measure.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lockstep/base/rng.hpp"
#include "ports/cuda/runtime/check.hpp"

namespace lockstep::cuda {

namespace {

/// Random numbers below 2, whether read as fp32, bf16 or fp16. Zeros would need less power, and a
/// GPU would multiply them faster than in any training.
void fill(const DeviceBuffer& buffer, const CudaStream& stream) {
  std::vector<std::uint32_t> words(
      std::min(buffer.size() / sizeof(std::uint32_t), std::size_t{1} << 20));
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = (philox(1, i, 0).word[0] & 0x8fff8fff) | 0x30003000;
  const std::size_t bytes = words.size() * sizeof(std::uint32_t);
  for (std::size_t at = 0; at < buffer.size(); at += bytes)
    check_cuda(
        cudaMemcpyAsync(buffer.data() + at, words.data(), std::min(bytes, buffer.size() - at),
                        cudaMemcpyHostToDevice, stream.get()),
        "cudaMemcpyAsync");
  check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}

}  // namespace

backend::GpuRates measure_rates(CudaDevice& device, ConvPlanner& planner, std::size_t channels) {
  constexpr std::size_t side = 32;
  ConvRequest request;
  ConvShape& shape = request.shape;
  shape.batch = channels / side;
  shape.height = shape.width = shape.out_height = shape.out_width = side;
  shape.channels = shape.outputs = channels;
  const DeviceBuffer x(shape.input_count() * sizeof(float), "a measurement"),
      y(shape.output_count() * sizeof(float), "a measurement"),
      w(shape.weight_count() * sizeof(float), "a measurement");
  fill(x, device.compute());
  fill(w, device.compute());

  backend::GpuRates rates;
  rates.bandwidth = 2 * static_cast<double>(x.size()) / device.fastest_s([&] {
    check_cuda(cudaMemcpyAsync(y.data(), x.data(), x.size(), cudaMemcpyDeviceToDevice,
                               device.compute().get()),
               "cudaMemcpyAsync");
  });
  const auto products = [&](backend::Precision precision) {
    request.precision = precision;
    const ConvPlan& plan = planner.plan(request);
    const DeviceBuffer workspace(plan.workspace(), "a measurement");
    const double seconds = device.fastest_s([&] {
      plan.run({x.data(), w.data(), y.data()}, workspace.data());
    });
    return shape.flops() / seconds;
  };
  rates.fp32 = products(backend::Precision::fp32);
  rates.tf32 = products(backend::Precision::tf32);
  rates.bf16 = products(backend::Precision::bf16);
  rates.fp16 = products(backend::Precision::fp16);
  return rates;
}

}  // namespace lockstep::cuda
