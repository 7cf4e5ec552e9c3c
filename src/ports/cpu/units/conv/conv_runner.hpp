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

/// What a chunk has of a training's convolution. Lines are those of the batch's maps. Of bands, the
/// outputs and the inputs of a chunk do not read just each other.
struct ConvCut {
  nn::LineRange out, in;               ///< own outputs, and what they read
  nn::LineRange own_in, outs;          ///< own inputs, and the outputs whose gradients they need
  std::size_t idle_above, idle_below;  ///< own inputs at the ends that no output reads
  std::size_t rows;                    ///< of the primitives
  ConvGeometry of_out, of_in;          ///< in -> out, own_in without the idle ones -> outs
  static ConvCut of(const ConvGeometry& whole, const Chunk& chunk, bool band);
  /// Equal for cuts that take the same primitives.
  std::vector<std::size_t> sizes() const;
};

/// A convolution's weights in the formats that its primitives want.
class WeightCopies {
 public:
  /// The buffer of the copy in format `to`: `request`, where there is none yet.
  std::size_t add(Context& context, const dnnl::memory::desc& from, const dnnl::memory::desc& to,
                  const BufferRequest& request);
  void make(Context& context, float* weights, std::size_t lane);  ///< this lane's part

 private:
  struct Copy {
    dnnl::memory::desc format;
    std::size_t buffer;
    WeightReorder reorder;
  };
  std::vector<Copy> copies_;
};

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
  void plan_messages() override;
  void before_weights(bool accumulate) override { accumulate_ = accumulate; }
  void make_weights(const Chunk& chunk) override;
  void after_weights(std::size_t lane) override { add_partials(lane); }
  using Runner::value;
  const std::byte* value(const Chunk&, const nn::LineRange& lines) override {
    return output(lines);
  }
  const std::byte* input_gradient(const Chunk& chunk) override;
  std::vector<std::size_t> slices() const override;
  std::vector<std::size_t> late_slices() const override;

  BatchNorm norm;

 private:
  /// What chunks of one size share, with each lane's arguments.
  struct Prepared {
    ConvFormats formats;
    ConvPrimitives primitives;
    std::optional<std::size_t> forward_copy;  ///< a buffer; none: the arena's
    std::size_t backward_copy = 0;
    WinogradConv winograd_of_out, winograd_of_in;
    std::vector<std::unordered_map<int, dnnl::memory>> forward, backward_data, backward_weights;
  };
  struct Part {
    ConvCut cut;
    Prepared* prepared;
  };
  /// The outputs whose gradients backward needs for a chunk.
  nn::LineRange gradients(const ConvCut& cut) const {
    return unit.differentiates ? nn::covering(cut.out, cut.outs) : cut.out;
  }
  Part& part_of(const Chunk& chunk) { return parts_[chunk.index]; }
  void choose_algorithms();
  ConvFormats formats_of(const ConvCut& cut) const;
  Prepared prepare(const ConvCut& cut);
  void copy_weights(Prepared& prepared, bool needs_data_gradient);
  void bind_lane(Prepared& prepared, const ConvCut& cut, std::size_t lane);
  std::byte* output(const nn::LineRange& lines) const { return c.at(x_) + map.offset(lines); }
  /// The gradient of these lines of the output: of a chunk's, also those that other tiles made.
  void output_gradient(const nn::LineRange& lines, std::byte* dx);
  void own_output_gradient(const nn::LineRange& lines, std::byte* dx);
  /// Where a line of another tile is: those above this tile's own lie before those below.
  std::byte* from_others(std::size_t image, std::size_t line);
  const std::byte* input(const Chunk& chunk);
  /// For the chunk's lines of the input.
  std::byte* data_gradient(const Chunk& chunk);
  /// Where a lane sums its chunks' weight gradients: lane 0 in the arena, the others in separate
  /// buffers.
  float* partial(std::size_t lane) const;
  void plan_backward();
  void weight_gradient(const Chunk& chunk, std::byte* dx);
  void add_partials(std::size_t lane);
  void make_data_gradient(const Chunk& chunk, std::byte* dx);
  std::byte* scratch(const Chunk& chunk) const { return c.lane_library_scratch[chunk.lane].data(); }

  Image& image_;
  PointRunner* inline_input_ = nullptr;  // a point that this unit runs
  ConvGeometry geometry_;
  Map from_;                            // of the input, and of its gradient
  std::vector<std::byte> from_others_;  // lines of the output's gradient, by image
  std::optional<ConvFormats> formats_;  // of the first chunk
  WinogradConv winograd_;
  backend::WinogradPasses by_winograd_;  // the other passes are direct convolutions
  TapGradient tap_gradient_ = nullptr;   // a direct weight gradient that is not oneDNN's
  float *weights_ = nullptr, *gradient_ = nullptr;
  std::size_t gradient_size_ = 0;  // floats, padding included
  bool accumulate_ = false;
  WeightCopies forward_copies_, backward_copies_;
  std::size_t x_ = 0, winograd_forward_ = 0, winograd_backward_ = 0;
  std::vector<std::size_t> partials_;        // buffers of the lanes from 1 on
  std::size_t dx_ = 0, chunk_gradient_ = 0;  // offsets in the lane's scratch
  GradientPlace dinput_;
  std::optional<std::size_t> late_dx_;                     // a buffer: weight gradients come later
  std::map<std::vector<std::size_t>, Prepared> prepared_;  // by what tells sizes of chunks apart
  std::vector<Part> parts_;                                // by chunk
};

}  // namespace lockstep::cpu
