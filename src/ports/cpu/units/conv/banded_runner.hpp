#pragma once

#include <vector>

#include "ports/cpu/units/conv/folded_runner.hpp"

namespace lockstep::cpu {

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
