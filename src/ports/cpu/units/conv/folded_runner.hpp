#pragma once

#include <map>
#include <vector>

#include "ports/cpu/units/conv/convolution.hpp"
#include "ports/cpu/units/conv/winograd_conv.hpp"
#include "ports/cpu/units/image.hpp"

namespace lockstep::cpu {

/// Evaluation's [relu](bn(conv) [+ skip]). The batch norm is a part of the convolution: its scale
/// of the weights, its shift of the bias. So every value is written once. By Winograd's algorithm,
/// the batch norm comes after the convolution of a chunk, which is then in cache.
class FoldedRunner final : public Runner {
 public:
  FoldedRunner(Context& context, std::size_t number, Image& image);
  void plan() override;
  void bind() override;
  void fold() override;
  void forward(const Chunk& chunk) override;
  const std::byte* value(const Chunk& chunk) override { return output(chunk); }
  const std::byte* input_gradient(const Chunk&) override { return nullptr; }

 private:
  /// The primitive for one number of stripes, with each lane's arguments.
  struct Prepared {
    dnnl::convolution_forward primitive;
    std::vector<std::unordered_map<int, dnnl::memory>> arguments;
  };
  void plan_direct();
  void find_norm();
  void fold_weights();
  void bring_skip(const Chunk& chunk);
  void forward_direct(const Chunk& chunk);
  void forward_by_winograd(const Chunk& chunk);
  std::byte* output(const Chunk& chunk) const {
    return c.value_at(index, chunk, geometry_.destination_bytes());
  }
  const std::byte* input(const Chunk& chunk);

  Image& image_;
  ConvGeometry geometry_, stripe_;
  dnnl::memory::desc format_;  // of the folded weights, by direct convolution
  WinogradConv winograd_;
  bool by_winograd_ = false;
  float* weights_ = nullptr;                  // the arena's
  std::vector<float> scale_, shift_;          // of the batch norm
  std::size_t folded_ = 0;                    // a buffer
  std::size_t product_ = 0;                   // offset in the lane's scratch
  std::map<std::size_t, Prepared> prepared_;  // by stripes
};

}  // namespace lockstep::cpu
