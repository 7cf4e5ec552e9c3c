#include "ports/cuda/plan/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lockstep/base/rng.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::cuda {

namespace {

/// Random numbers below 2, whether read as fp32, bf16 or fp16. Zeros would need less power, and a
/// GPU would multiply them faster than in any training.
void fill(const DeviceBuffer& buffer, const CudaStream& stream) {
  std::vector<std::uint32_t> words(
      std::min(buffer.size() / sizeof(std::uint32_t), std::size_t{1} << 20));
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = (philox(1, i, 0).word[0] & 0x8fff8fff) | 0x30003000;
  std::size_t filled = std::min(words.size() * sizeof(std::uint32_t), buffer.size());
  check_cuda(
      cudaMemcpyAsync(buffer.data(), words.data(), filled, cudaMemcpyHostToDevice, stream.get()),
      "cudaMemcpyAsync");
  while (filled > 0 && filled < buffer.size()) {
    const std::size_t more = std::min(filled, buffer.size() - filled);
    check_cuda(cudaMemcpyAsync(buffer.data() + filled, buffer.data(), more,
                               cudaMemcpyDeviceToDevice, stream.get()),
               "cudaMemcpyAsync");
    filled += more;
  }
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
  rates.bandwidth = 2 * static_cast<double>(x.size()) / device.fastest_called_s([&] {
    check_cuda(cudaMemcpyAsync(y.data(), x.data(), x.size(), cudaMemcpyDeviceToDevice,
                               device.compute().get()),
               "cudaMemcpyAsync");
  });
  const auto products = [&](backend::Precision precision) {
    request.precision = precision;
    const ConvPlan& plan = planner.plan(request);
    const DeviceBuffer workspace(plan.workspace(), "a measurement");
    const double seconds = device.fastest_recorded_s([&] {
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

std::byte* PlanTimer::room(DeviceBuffer& buffer, std::size_t bytes) {
  if (buffer.size() >= bytes) return buffer.data();
  buffer = {};  // first, or both would be there for a moment
  buffer = DeviceBuffer(bytes, "measuring a convolution");
  fill(buffer, device_.compute());
  return buffer.data();
}

double PlanTimer::seconds(const ConvRequest& request, const ConvPlan& plan) {
  const ConvShape& s = request.shape;
  const std::size_t bytes = bytes_of(storage_of(request.precision));
  const std::size_t x = aligned(s.input_count() * bytes), w = aligned(s.weight_count() * bytes),
                    y = aligned(s.output_count() * bytes),
                    numbers = aligned(std::max(s.channels, s.outputs) * sizeof(float));
  std::byte* in = room(inputs_, x + w + y + 6 * numbers);
  std::byte* out = room(outputs_, std::max({x, w, y}) + x + (2 + gradient_sum_arrays) * numbers);
  const auto* of_norm = reinterpret_cast<const float*>(in + x + w + y);
  const std::size_t step = numbers / sizeof(float);
  auto* sums = reinterpret_cast<float*>(out + std::max({x, w, y}) + x);
  ConvOperands operands{in, in + x, in + x + w};
  operands.norm = {.scale = of_norm,
                   .shift = of_norm + step,
                   .mean = of_norm + 2 * step,
                   .inverse_deviation = of_norm + 3 * step,
                   .gamma = of_norm + 4 * step,
                   .beta = of_norm + 5 * step,
                   .sum = sums,
                   .square_sum = sums + step,
                   .g = out + std::max({x, w, y}),
                   .gradient_sums = sums + 2 * step};
  switch (request.pass) {
    case Pass::forward:
      operands.y = out;
      break;
    case Pass::data_gradient:
      if (!request.fusion.norm_gradient) operands.x = out;
      break;
    case Pass::weight_gradient:
      operands.w = out;
      break;
  }
  std::byte* scratch = room(workspace_, plan.workspace());
  return device_.fastest_recorded_s([&] { plan.run(operands, scratch); });
}

double PlanTimer::seconds(NormPart part, const Matrix& shape, Storage storage) {
  const std::size_t values = aligned(shape.count() * bytes_of(storage)),
                    channels = aligned(static_cast<std::size_t>(shape.channels) * sizeof(float));
  std::byte* in = room(inputs_, 2 * values + 4 * channels);
  std::byte* out = room(outputs_, values + (norm_channel_arrays + 4) * channels);
  std::byte* lines = room(workspace_, norm_scratch(shape));
  const auto read = [&](std::size_t i) {
    return reinterpret_cast<const float*>(in + 2 * values + i * channels);
  };
  const auto written = [&](std::size_t i) {
    return reinterpret_cast<float*>(out + values + (norm_channel_arrays + i) * channels);
  };
  const NormParameters numbers{.gamma = read(0),
                               .beta = read(1),
                               .running_mean = read(2),
                               .running_var = read(3),
                               .dgamma = written(0),
                               .dbeta = written(1),
                               .mean_share = written(2),
                               .var_share = written(3),
                               .epsilon = 1e-5f,
                               .momentum = 0.1f};
  const NormChannels each = norm_channels(reinterpret_cast<float*>(out + values), shape.channels);
  const DeviceBuffer zeros(sizeof(DeviceScalars) + norm_tickets(shape) * sizeof(unsigned),
                           "measuring a batch norm");
  const cudaStream_t stream = device_.compute().get();
  check_cuda(cudaMemsetAsync(zeros.data(), 0, zeros.size(), stream), "cudaMemsetAsync");
  const SumScratch scratch{lines, zeros.as<unsigned>(sizeof(DeviceScalars))};
  const NormBackward gradient{.first = in + values,
                              .second = nullptr,
                              .x = in,
                              .mask = Mask::from_x,
                              .bits = nullptr,
                              .g = nullptr};
  return device_.fastest_recorded_s([&] {
    switch (part) {
      case NormPart::statistics:
        return norm_statistics(in, shape, storage, numbers, each, scratch, stream);
      case NormPart::apply:
        return norm_apply({in, nullptr, true, out}, shape, storage, each, stream);
      case NormPart::gradient_sums:
        return norm_gradients(gradient, shape, storage, numbers, each, false,
                              zeros.as<DeviceScalars>(), scratch, stream);
    }
  });
}

}  // namespace lockstep::cuda
