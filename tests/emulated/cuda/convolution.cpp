// Replaces cuDNN with plain loops that sum in fp32. It keeps cuDNN's contract on the storage of
// what is read and written, and its workspace has no defined content.
#include "ports/cuda/plan/engines/conv_engines.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "ports/cuda/kernels/kernels.hpp"
#include "tests/emulated/cuda/gpu.hpp"

namespace lockstep::cuda {

namespace {

constexpr std::size_t workspace_bytes = 512;

std::vector<float> read(const void* data, std::size_t count, Storage storage) {
  check(emulated::on_device(data, count * bytes_of(storage)),
        "a convolution reads beyond an allocation");
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) switch (storage) {
      case Storage::fp32:
        values[i] = static_cast<const float*>(data)[i];
        break;
      case Storage::bf16:
        values[i] = __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
        break;
      case Storage::fp16:
        values[i] = __half2float(static_cast<const __half*>(data)[i]);
        break;
    }
  return values;
}

void write(const std::vector<float>& values, Storage storage, void* data) {
  check(emulated::on_device(data, values.size() * bytes_of(storage)),
        "a convolution writes beyond an allocation");
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    switch (storage) {
      case Storage::fp32:
        static_cast<float*>(data)[i] = value;
        break;
      case Storage::bf16:
        static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
        break;
      case Storage::fp16:
        static_cast<__half*>(data)[i] = __float2half_rn(value);
        break;
    }
  }
}

/// Calls body(x, w, y) for each pixel of each window, with the offsets of its channels, of their
/// weights and of the outputs that they contribute to. Weights [kernel pixels, outputs, channels],
/// of each group apart: the offsets are of the group's first ones.
template <class Body>
void each_pixel(const ConvShape& s, const Body& body) {
  for (std::size_t n = 0; n < s.batch; ++n)
    for (std::size_t oy = 0; oy < s.out_height; ++oy)
      for (std::size_t ox = 0; ox < s.out_width; ++ox)
        for (std::size_t k = 0; k < s.kernel_pixels(); ++k) {
          // Unsigned: a position above or left of the image becomes larger than the image.
          const std::size_t y = oy * s.stride + k / s.kernel_width - s.padding;
          const std::size_t x = ox * s.stride + k % s.kernel_width - s.padding;
          if (y >= s.height || x >= s.width) continue;
          const std::size_t in = ((n * s.height + y) * s.width + x) * s.channels,
                            out = ((n * s.out_height + oy) * s.out_width + ox) * s.outputs,
                            outs = s.group_outputs(), ins = s.group_channels();
          for (std::size_t g = 0; g < s.groups; ++g)
            body(in + g * ins, (g * s.kernel_pixels() + k) * outs * ins, out + g * outs);
        }
}

/// to += factor * from.
void add(float factor, const float* from, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

/// Converts between [outputs, pixels, channels], the stored order of weights, and the loops' order.
enum class Weights { by_output, by_channel };  ///< innermost: channels, or outputs
std::size_t place(const ConvShape& s, Weights order, std::size_t k, std::size_t p, std::size_t c) {
  const std::size_t outs = s.group_outputs(), ins = s.group_channels();
  const std::size_t at = k / outs * s.kernel_pixels() + p, within = k % outs;
  return order == Weights::by_output ? (at * outs + within) * ins + c
                                     : (at * ins + c) * outs + within;
}
std::vector<float> reordered(const ConvShape& s, Weights order, const std::vector<float>& w,
                             bool back) {
  std::vector<float> moved(w.size());
  std::size_t kept = 0;
  for (std::size_t k = 0; k < s.outputs; ++k)
    for (std::size_t p = 0; p < s.kernel_pixels(); ++p)
      for (std::size_t c = 0; c < s.group_channels(); ++c, ++kept)
        back ? moved[kept] = w[place(s, order, k, p, c)]
             : moved[place(s, order, k, p, c)] = w[kept];
  return moved;
}

/// The input of a fused forward or weight gradient: ReLU(x * scale + shift), as fp16.
void normalise(const ConvShape& s, const NormOperands& norm, std::vector<float>& x) {
  const std::vector<float> scale = read(norm.scale, s.channels, Storage::fp16),
                           shift = read(norm.shift, s.channels, Storage::fp16);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float v = x[i] * scale[i % s.channels] + shift[i % s.channels];
    x[i] = __half2float(__float2half_rn(v < 0 ? 0.f : v));
  }
}

/// The sums of y and of y * y over each output.
void write_sums(const ConvShape& s, const NormOperands& norm, const std::vector<float>& y) {
  std::vector<float> sum(s.outputs), square_sum(s.outputs);
  for (std::size_t i = 0; i < y.size(); ++i) {
    sum[i % s.outputs] += y[i];
    square_sum[i % s.outputs] += y[i] * y[i];
  }
  write(sum, Storage::fp32, norm.sum);
  write(square_sum, Storage::fp32, norm.square_sum);
}

/// The rest of a fused data gradient. `g` holds the convolution's part and `x` the batch norm's
/// input.
void end_before_relu(const ConvShape& s, Storage storage, const NormOperands& norm,
                     const std::vector<float>& x, std::vector<float> g) {
  const auto of_norm = [&](const float* at) { return read(at, s.channels, Storage::fp32); };
  const std::vector<float> mean = of_norm(norm.mean), inverse = of_norm(norm.inverse_deviation),
                           gamma = of_norm(norm.gamma), beta = of_norm(norm.beta);
  // The last three have no defined content.
  std::vector<float> sums(gradient_sum_arrays * s.channels, std::nanf(""));
  std::fill_n(sums.begin(), 2 * s.channels, 0.f);
  for (std::size_t i = 0; i < g.size(); ++i) {
    const std::size_t c = i % s.channels;
    const float normalised = (x[i] - mean[c]) * inverse[c];
    if (!(normalised * gamma[c] + beta[c] > 0)) g[i] = 0;
    sums[c] += g[i] * normalised;
    sums[s.channels + c] += g[i];
  }
  write(g, storage, norm.g);
  write(sums, Storage::fp32, norm.gradient_sums);
}

void convolve(const ConvRequest& request, const ConvOperands& op) {
  const ConvShape& s = request.shape;
  const Storage storage = storage_of(request.precision);
  const bool backward = request.pass == Pass::data_gradient;
  std::vector<float> x(s.input_count()), w(s.weight_count()), y(s.output_count());
  const ConvFusion& fusion = request.fusion;
  if (!backward) x = read(op.x, x.size(), storage);
  if (fusion.normalised) normalise(s, op.norm, x);
  if (request.pass != Pass::weight_gradient) w = read(op.w, w.size(), storage);
  if (request.pass != Pass::forward) y = read(op.y, y.size(), storage);
  const auto mutated = [](const void* data) { return const_cast<void*>(data); };
  switch (request.pass) {
    case Pass::forward:
      w = reordered(s, Weights::by_channel, w, false);
      each_pixel(s, [&](std::size_t in, std::size_t at, std::size_t out) {
        for (std::size_t c = 0; c < s.group_channels(); ++c)
          add(x[in + c], &w[at + c * s.group_outputs()], s.group_outputs(), &y[out]);
      });
      if (fusion.sums) write_sums(s, op.norm, y);
      return write(y, storage, mutated(op.y));
    case Pass::data_gradient:
      w = reordered(s, Weights::by_output, w, false);
      each_pixel(s, [&](std::size_t in, std::size_t at, std::size_t out) {
        for (std::size_t k = 0; k < s.group_outputs(); ++k)
          add(y[out + k], &w[at + k * s.group_channels()], s.group_channels(), &x[in]);
      });
      if (fusion.norm_gradient)
        return end_before_relu(s, storage, op.norm, read(op.x, s.input_count(), storage), x);
      return write(x, storage, mutated(op.x));
    case Pass::weight_gradient:
      each_pixel(s, [&](std::size_t in, std::size_t at, std::size_t out) {
        for (std::size_t k = 0; k < s.group_outputs(); ++k)
          add(y[out + k], &x[in], s.group_channels(), &w[at + k * s.group_channels()]);
      });
      return write(reordered(s, Weights::by_output, w, true), storage, mutated(op.w));
  }
}

std::string engine_name(std::size_t number) { return "engine " + std::to_string(number); }

}  // namespace

struct ConvPlan::Impl {
  ConvRequest request;
  cudaStream_t stream = nullptr;
  std::string engine = "emulated";
};
struct ConvPlanner::Target {
  cudaStream_t stream = nullptr;
};

ConvPlan::ConvPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConvPlan::~ConvPlan() = default;
std::size_t ConvPlan::workspace() const { return workspace_bytes; }
const std::string& ConvPlan::engine() const { return impl_->engine; }

void ConvPlan::run(const ConvOperands& operands, void* workspace) const {
  check(emulated::on_device(workspace, workspace_bytes), "a workspace goes beyond its allocation");
  emulated::enqueue(impl_->stream, [=, request = impl_->request] {
    std::memset(workspace, 0xff, workspace_bytes);
    convolve(request, operands);
  });
}

ConvPlanner::ConvPlanner(const CudaStream& stream)
    : target_(std::make_unique<Target>(Target{stream.get()})) {}
ConvPlanner::~ConvPlanner() = default;

const ConvPlan& ConvPlanner::plan(const ConvRequest& request) {
  std::unique_ptr<ConvPlan>& kept = plans_[request];
  if (!kept) kept = make(request);
  return *kept;
}

std::unique_ptr<ConvPlan> ConvPlanner::make(const ConvRequest& request) const {
  auto impl = std::make_unique<ConvPlan::Impl>();
  impl->request = request;
  impl->stream = target_->stream;
  if (request.measured && tuning_)
    if (const auto engine = find_fastest(request)) impl->engine = engine_name(*engine);
  return std::make_unique<ConvPlan>(std::move(impl));
}

/// As many engines as are measured, and one more; the second one cannot do anything.
std::optional<std::size_t> ConvPlanner::find_fastest(const ConvRequest& request) const {
  auto offered = std::make_unique<ConvPlan::Impl>();
  ConvPlan::Impl& trial = *offered;
  trial.request = request;
  trial.stream = target_->stream;
  const ConvPlan plan(std::move(offered));
  EngineList engines;
  engines.count = most_measured + 2;
  engines.name = engine_name;
  engines.builds = [](std::size_t i) { return i != 1; };
  engines.seconds = [&](std::size_t i) {
    trial.engine = engine_name(i);
    return tuning_->seconds(request, plan);
  };
  return choose_engine(tuning_->cache, describe(request), engines);
}

bool ConvPlanner::possible(const ConvRequest&) { return true; }

std::string ConvPlanner::library_version() { return "emulated"; }

}  // namespace lockstep::cuda
