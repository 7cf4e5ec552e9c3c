#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/backend/precision.hpp"
#include "lockstep/nn/network.hpp"
#include "ports/cuda/plan/engines/engine_choice.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::cuda {

/// forward: y from x and w. data_gradient: x from w and y. weight_gradient: w from x and y. A pass
/// writes the gradient of a forward operand in the place of that operand.
enum class Pass { forward, data_gradient, weight_gradient };
const char* to_string(Pass pass);

/// A convolution as the GPU sees it: NHWC, weights [outputs, kernel height, kernel width,
/// channels / groups], channels of the image already padded, or the image folded.
struct ConvShape {
  std::size_t batch = 1;
  std::size_t channels = 1, height = 1, width = 1;
  std::size_t outputs = 1, out_height = 1, out_width = 1;
  std::size_t kernel_height = 1, kernel_width = 1, stride = 1, padding = 0;
  std::size_t groups = 1;
  auto operator<=>(const ConvShape&) const = default;
  std::size_t input_count() const { return batch * channels * height * width; }
  std::size_t output_count() const { return batch * outputs * out_height * out_width; }
  std::size_t kernel_pixels() const { return kernel_height * kernel_width; }
  std::size_t group_channels() const { return channels / groups; }
  std::size_t group_outputs() const { return outputs / groups; }
  std::size_t weight_count() const { return outputs * kernel_pixels() * group_channels(); }
  /// Operations of one pass, 2 for each multiply-add.
  double flops() const {
    return 2.0 * static_cast<double>(output_count()) *
           static_cast<double>(group_channels() * kernel_pixels());
  }
};

/// Which parts of the batch norms before and after it a convolution computes. cuDNN has engines for
/// that in fp16.
struct ConvFusion {
  /// x is the input of the batch norm before it: forward and the weight gradient normalise x and
  /// apply the ReLU as they read it.
  bool normalised = false;
  bool sums = false;  ///< forward also makes the sums over y, for the batch norm after it
  /// The data gradient ends before that ReLU and makes the sums that the batch norm's own gradients
  /// need. It reads the batch norm's input.
  bool norm_gradient = false;
  auto operator<=>(const ConvFusion&) const = default;
};

/// The request for a plan. x, w and y are stored and multiplied in `precision`; products are summed
/// in fp32.
struct ConvRequest {
  Pass pass = Pass::forward;
  ConvShape shape;
  backend::Precision precision = backend::Precision::fp32;
  bool deterministic = false;  ///< only engines that give the same bits each time
  ConvFusion fusion;           ///< only the parts of this pass
  bool measured = false;       ///< the fastest engine, if the planner has a ConvTuning
  auto operator<=>(const ConvRequest&) const = default;
};
/// "data gradient of a 3x3 convolution, 256 x 56x56x64 -> 56x56x64, stride 1, padding 1, fp16"
std::string describe(const ConvRequest& request);

/// What a fused plan needs in addition to the tensors, on the device, 16-byte aligned. Arrays for
/// x: [channels]; sums of y: [outputs].
struct NormOperands {
  const void *scale = nullptr,
             *shift = nullptr;  ///< fp16: relu(x * scale + shift) goes into the product
  const float *mean = nullptr, *inverse_deviation = nullptr, *gamma = nullptr, *beta = nullptr;
  float *sum = nullptr, *square_sum = nullptr;  ///< forward writes the sums of y and of y * y
  /// The data gradient writes g, shaped like x, and gradient_sums [5, channels]: the gradients of
  /// gamma and of beta, and three that cuDNN derives from them.
  void* g = nullptr;
  float* gradient_sums = nullptr;
};
constexpr std::size_t gradient_sum_arrays = 5;

/// The three tensors of a convolution, on the device. The pass decides which one is written.
struct ConvOperands {
  const void *x = nullptr, *w = nullptr, *y = nullptr;
  NormOperands norm = {};
};

/// cuDNN's plan for one pass of one convolution.
class ConvPlan {
 public:
  struct Impl;
  explicit ConvPlan(std::unique_ptr<Impl> impl);
  ~ConvPlan();
  std::size_t workspace() const;      ///< bytes of scratch that run() needs, 256-byte aligned
  const std::string& engine() const;  ///< the engine's name and knobs, as cuDNN calls them
  /// Only for plans that were built for a device: puts the work into its stream.
  void run(const ConvOperands& operands, void* workspace) const;

 private:
  std::unique_ptr<Impl> impl_;
};

/// The parts of a batch norm that a convolution next to it can compute instead.
enum class NormPart { statistics, apply, gradient_sums };

/// How a planner finds the fastest engines. All must outlive its use.
struct ConvTuning {
  PlanCache& cache;
  /// Seconds of one run of the plan. Throws Error where it cannot run.
  std::function<double(const ConvRequest&, const ConvPlan&)> seconds;
  /// Seconds of a part of a batch norm with a ReLU over `rows` rows.
  std::function<double(NormPart, std::size_t rows, std::size_t channels, backend::Precision)>
      norm_seconds;
};

/// Builds plans for the GPU of a stream, or for one that is only described in cuDNN's JSON (so that
/// a login node can ask what a GPU will do). Plans are kept: equal requests get the same one.
class ConvPlanner {
 public:
  explicit ConvPlanner(const CudaStream& stream);
  explicit ConvPlanner(const std::string& device_json);
  ~ConvPlanner();
  /// From now on requests that are `measured` are tuned, or no longer are.
  void tune_by(std::optional<ConvTuning> tuning) {
    tuning_ = tuning ? std::make_unique<ConvTuning>(std::move(*tuning)) : nullptr;
  }
  /// Throws Error naming the convolution and cuDNN's reason when no engine can do it.
  const ConvPlan& plan(const ConvRequest& request);
  /// False where plan() would throw.
  bool possible(const ConvRequest& request);
  /// nullptr unless requests are tuned now.
  const ConvTuning* tuning() const { return tuning_.get(); }
  /// What was chosen for the batch norms next to a convolution, by its name; fuse_norms() keeps it
  /// here, since programs are planned again without measuring.
  std::map<std::string, ConvFusion>& fusions() { return fusions_; }
  static std::string library_version();  ///< "9.19.0"

 private:
  struct Target;
  std::unique_ptr<ConvPlan> make(const ConvRequest& request) const;
  /// The number of the fastest engine; nothing if none could be measured.
  std::optional<std::size_t> find_fastest(const ConvRequest& request) const;

  std::unique_ptr<Target> target_;
  std::unique_ptr<ConvTuning> tuning_;
  std::map<ConvRequest, std::unique_ptr<ConvPlan>> plans_;
  std::map<std::string, ConvFusion> fusions_;
};

/// Channels of the image as convolutions see it where it is not folded, and of their weights in the
/// arena: padded with zeros to 4, because tensor cores cannot take 3.
std::size_t padded_image_channels(std::size_t channels);

/// The convolution of a conv or linear node (a linear layer is a 1x1 convolution of one pixel) in a
/// program of `batch` rows.
ConvShape conv_shape(const nn::Network& network, std::size_t node, std::size_t batch);

}  // namespace lockstep::cuda
