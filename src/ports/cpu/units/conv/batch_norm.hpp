#pragma once

#include "ports/cpu/runner.hpp"

namespace lockstep::cpu {

/// Training's batch norm after one convolution: its per-channel numbers, from the sums over the
/// batch to what the kernels use. Ioffe and Szegedy 2015; running variance is unbiased, like
/// PyTorch's. With a span, or tiles, the sums are those of all its ranks.
class BatchNorm {
 public:
  /// Once: the program's messages keep its address.
  void plan(Context& context, std::size_t node, std::size_t statistics_region,
            std::size_t gradient_region);

  // Forward. The sums of one chunk start at zero; normalise() turns all chunks' sums into scale and
  // shift.
  double* sums(std::size_t chunk);  ///< [2, channels] of (x - pivot), (x - pivot)^2, set to zero
  const float* pivot() const { return running_mean_; }
  void normalise(std::size_t begin, std::size_t end);  ///< channels [begin, end)

  // Backward, in the same way.
  double* gradient_sums(std::size_t chunk);  ///< [2, channels] of g, g * (x - mean), set to zero
  void differentiate(std::size_t begin, std::size_t end, bool accumulate);

  const float* mean() const { return now().mean.data(); }
  const float* scale() const { return now().scale.data(); }
  const float* shift() const { return now().shift.data(); }
  const float* a() const { return a_.data(); }
  const float* b() const { return b_.data(); }
  const float* c() const { return c_.data(); }
  std::vector<std::size_t> slices() const { return slices_; }

 private:
  /// What the rows of a batch sum up to in one channel.
  struct Statistics {
    double count, mean, variance;
  };
  using Sums = NormMessage::Sums;
  Statistics own_statistics(std::size_t channel) const;
  Statistics statistics(std::size_t channel) const;
  Sums own_gradient_sums(std::size_t channel) const;
  void plan_messages(std::size_t forward_region, std::size_t backward_region);
  void keep_statistics(std::size_t channel, const Statistics& of_batch, bool accumulate);

  /// What one micro-batch's forward learns and its backward needs, by channel.
  struct Moments {
    std::vector<double> count, variance;
    std::vector<float> mean, inverse_deviation, scale, shift;
  };
  const Moments& now() const { return moments_[context_->slot]; }

  Context* context_ = nullptr;
  std::size_t channels_ = 0;
  std::size_t values_ = 0;               // of a channel, on this rank
  std::vector<std::size_t> row_values_;  // of a channel, in one row, by rank of the span
  std::size_t chunks_ = 0, gradient_chunks_ = 0;
  float epsilon_ = 0, momentum_ = 0;
  const float *gamma_ = nullptr, *beta_ = nullptr, *running_mean_ = nullptr;
  float *dgamma_ = nullptr, *dbeta_ = nullptr, *mean_share_ = nullptr, *var_share_ = nullptr;
  std::vector<Moments> moments_;              // by slot
  std::size_t sums_ = 0, gradient_sums_ = 0;  // buffers: [chunks, 2, channels] of double
  NormMessage::Told told_statistics_, told_sums_;
  std::vector<float> a_, b_, c_;
  std::vector<std::size_t> slices_;
};

}  // namespace lockstep::cpu
