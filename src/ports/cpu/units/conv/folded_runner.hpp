#pragma once

#include <map>
#include <vector>

#include "ports/cpu/units/boundary_runner.hpp"
#include "ports/cpu/units/conv/convolution.hpp"
#include "ports/cpu/units/conv/winograd_conv.hpp"

namespace lockstep::cpu {

/// Evaluation's [relu](bn(conv) [+ skip]). The batch norm is a part of the convolution: its scale
/// of the weights, its shift of the bias. So every value is written once. By Winograd's algorithm,
/// the batch norm comes where the outputs are made of the products.
class FoldedRunner : public Runner {
 public:
  FoldedRunner(Context& context, std::size_t number, Image& image);
  void plan() override;
  void bind() override;
  void fold() override;
  void forward(const Chunk& chunk) override;
  using Runner::value;
  const std::byte* value(const Chunk& chunk, const nn::LineRange& lines) override {
    return c.value_at(index, chunk.lane, map, lines);
  }
  const std::byte* input_gradient(const Chunk&) override { return nullptr; }

 protected:
  /// The primitive for one number of stripes, with each lane's arguments.
  struct Prepared {
    dnnl::convolution_forward primitive;
    std::vector<std::unordered_map<int, dnnl::memory>> arguments;
  };
  virtual void plan_image() { image_.plan(unit.level, index); }
  virtual void plan_direct();
  void forward_by_winograd(const Chunk& chunk, const WinogradPart& part);
  /// What oneDNN gets; the handles are set before each call.
  std::unordered_map<int, dnnl::memory> arguments_for(const ConvGeometry& geometry,
                                                      std::size_t rows, std::size_t lane);
  dnnl::convolution_forward::primitive_desc direct_desc(const ConvGeometry& geometry,
                                                        const dnnl::memory::desc& weights,
                                                        std::size_t rows) const;
  void execute(const dnnl::convolution_forward& primitive, std::size_t lane,
               std::unordered_map<int, dnnl::memory>& arguments, const std::byte* from,
               std::byte* to) const;
  /// Finds a place for the folded weights.
  void place_folded(std::size_t bytes);
  void* folded() const { return shared_ ? shared_->memory.data() : c.at<void>(folded_); }
  std::byte* output(const Chunk& chunk) const {
    return c.value_at(index, chunk.lane, map, map.of(chunk));
  }

  Image& image_;
  ConvGeometry geometry_, stripe_;
  dnnl::memory::desc format_;  // of the folded weights, by direct convolution
  WinogradConv winograd_;
  bool by_winograd_ = false;
  float* weights_ = nullptr;          // the arena's
  std::vector<float> scale_, shift_;  // of the batch norm

 private:
  void find_norm();
  void fold_weights();
  void bring_skip(const Chunk& chunk);
  const std::byte* input(const Chunk& chunk);

  std::map<std::size_t, Prepared> prepared_;  // by stripes
  FoldedWeights* shared_ = nullptr;           // with other programs, or none
  std::size_t folded_ = 0;                    // where none: a buffer
};

/// Evaluation's convolution where lanes share the rows: each lane makes some lines of the output,
/// or, by Winograd's algorithm, some tiles or channels. A chunk stands for its lane; it has all
/// rows.
class BandedRunner final : public FoldedRunner {
 public:
  using FoldedRunner::FoldedRunner;
  void bind() override;
  void forward(const Chunk& chunk) override;

 private:
  /// One call of a lane.
  struct Job {
    Band band;
    ConvGeometry geometry;
    dnnl::convolution_forward primitive;
    std::unordered_map<int, dnnl::memory> arguments;
  };
  void plan_image() override {}
  void plan_direct() override;
  void add_job(const Band& band);
  std::size_t most_lines_in() const;
  void share_by_winograd(const Chunk& chunk);
  void pad_by_winograd(const Chunk& chunk);
  void bring_skip(const Chunk& chunk, const Band& band);
  const std::byte* source(const Chunk& chunk, const Band& band) const;
  std::size_t line_bytes_in() const { return lines_.source_bytes() / lines_.height; }
  std::size_t line_bytes_out() const { return lines_.destination_bytes() / lines_.out_height; }
  std::size_t line_out(const Band& band) const {
    return band.image * lines_.out_height + band.first;
  }
  ConvGeometry lines_;                  // a convolution of 1 x 1 takes all pixels as lines of one
  std::size_t images_ = 1;              // of lines_
  std::vector<std::vector<Job>> jobs_;  // by lane
  std::size_t pixels_ = 0;              // of the network's input, in the lane's scratch
};

}  // namespace lockstep::cpu
