#pragma once

#include <cstddef>

#include "lockstep/backend/program.hpp"
#include "ports/cpu/runner.hpp"

namespace lockstep::cpu {

/// Global average pooling, linear layer and loss, always in float. One chunk for each
/// lane. A row's logits have the same bits in any chunk.
class HeadRunner final : public Runner {
 public:
  HeadRunner(Context& context, std::size_t number) : Runner(context, number) {}
  void plan() override;
  void forward(const Chunk& chunk) override;
  void after_forward() override;
  void backward(const Chunk& chunk) override;
  void after_backward(std::size_t lane, bool accumulate) override;
  using Runner::value;
  const std::byte* value(const Chunk& chunk, const nn::LineRange& lines) override;
  const std::byte* input_gradient(const Chunk& chunk) override;
  std::vector<std::size_t> slices() const override;

  /// Targets: nullptr: none, in evaluation. wanted: as in data::Batch.
  void load(const data::Target* targets, const float* wanted = nullptr);
  backend::Metrics take_metrics();
  void copy_logits(std::span<float> logits) const;

 private:
  void plan_tiles();
  void pool(std::size_t row, const std::byte* input, float* pooled) const;
  /// Of the tiles, which all make the same logits, the first counts them.
  bool speaks() const { return c.spec.tile.index == 0; }
  /// The loss of some rows, and its gradient.
  void judge(std::size_t first, std::size_t count, std::size_t lane);

  Map from_;  // of the input
  std::size_t features_ = 0, classes_ = 0, pixels_ = 0, place_ = 0;
  const float *weights_ = nullptr, *bias_ = nullptr;
  float *dweights_ = nullptr, *dbias_ = nullptr;
  /// One micro-batch, from forward to backward.
  struct HeadValues {
    const data::Target* targets = nullptr;
    const float* wanted = nullptr;
    std::vector<float> pooled;           // [batch, features]
    std::vector<float> logits, dlogits;  // [batch, classes]
  };
  HeadValues& now() { return rows_[c.slot]; }
  const HeadValues& now() const { return rows_[c.slot]; }

  NormMessage::Told averages_;             // of all tiles
  std::vector<HeadValues> rows_;           // by slot
  std::vector<float> dpooled_;             // [batch, features]
  std::vector<backend::Metrics> metrics_;  // by lane
};

}  // namespace lockstep::cpu
