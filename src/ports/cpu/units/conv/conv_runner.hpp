#pragma once

#include <map>

#include "ports/cpu/units/boundary_runner.hpp"
#include "ports/cpu/units/conv/batch_norm.hpp"
#include "ports/cpu/units/conv/convolution.hpp"
#include "ports/cpu/units/conv/winograd_conv.hpp"

namespace lockstep::cpu {

class PointRunner;

/// The scratch memory of one lane for oneDNN's primitives.
dnnl::memory library_scratch(const Context& context, std::size_t lane);

/// Training's convolution and the sums of the batch norm after it. Backward computes for each
/// chunk: the gradient of the convolution's output from the gradient after the batch norm, the
/// weight gradient, the data gradient.
class ConvRunner final : public Runner {
 public:
  ConvRunner(Context& context, std::size_t number, Image& image);
  void plan() override;
  void bind() override;
  void before_forward(std::size_t lane) override;
  void forward(const Chunk& chunk) override;
  void before_again(std::size_t lane) override;
  void forward_again(const Chunk& chunk) override;
  void before_backward(std::size_t lane, bool accumulate) override;
  void backward(const Chunk& chunk) override;
  void after_backward(std::size_t lane, bool accumulate) override;
  const std::byte* value(const Chunk& chunk) override { return output(chunk); }
  const std::byte* input_gradient(const Chunk& chunk) override;
  std::vector<std::size_t> slices() const override;

  BatchNorm norm;

 private:
  /// The primitives for one number of stripes, with each lane's arguments.
  struct Prepared {
    ConvPrimitives primitives;
    std::vector<std::unordered_map<int, dnnl::memory>> forward, backward_data, backward_weights;
  };
  Prepared& prepared(const Chunk& chunk) { return prepared_.at(chunk.count); }
  Prepared prepare(std::size_t count);
  void bind_lane(Prepared& prepared, std::size_t lane, std::size_t count);
  std::byte* output(const Chunk& chunk) const {
    return c.at(x_) + chunk.before(geometry_.destination_bytes());
  }
  const std::byte* input(const Chunk& chunk);
  std::byte* data_gradient(const Chunk& chunk);
  /// Where a lane sums its chunks' weight gradients: lane 0 in the arena, the others in separate
  /// buffers.
  float* partial(std::size_t lane) const;
  void plan_backward();
  void weight_gradient(const Chunk& chunk, std::byte* dx);
  std::byte* scratch(const Chunk& chunk) const { return c.lane_library_scratch[chunk.lane].data(); }

  Image& image_;
  PointRunner* inline_input_ = nullptr;  // a point that this unit runs
  ConvGeometry geometry_, stripe_;
  ConvFormats formats_;
  WinogradConv winograd_;
  backend::WinogradPasses by_winograd_;  // the other passes are direct convolutions
  TapGradient tap_gradient_ = nullptr;   // a direct weight gradient that is not oneDNN's
  float *weights_ = nullptr, *gradient_ = nullptr;
  std::size_t gradient_size_ = 0;  // floats, padding included
  bool accumulate_ = false;
  WeightReorder to_forward_, to_backward_;
  bool copy_forward_ = false;
  std::size_t x_ = 0, forward_weights_ = 0, backward_weights_ = 0;
  std::vector<std::size_t> partials_;                     // buffers of the lanes from 1 on
  std::size_t dx_ = 0, dinput_ = 0, chunk_gradient_ = 0;  // offsets in the lane's scratch
  std::map<std::size_t, Prepared> prepared_;              // by stripes
};

}  // namespace lockstep::cpu
