#include "ports/cpu/units/conv/batch_norm.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::cpu {

void BatchNorm::plan(Context& context, std::size_t node_index, std::size_t statistics_region,
                     std::size_t gradient_region) {
  context_ = &context;
  const nn::Node& node = context.network.nodes[node_index];
  channels_ = node.shape.channels;
  values_ = context.spec.batch * node.shape.height * node.shape.width;
  epsilon_ = node.epsilon;
  momentum_ = node.momentum;
  CpuParameters& p = context.parameters;
  gamma_ = p.find(backend::Part::weights, node.name + ".weight");
  beta_ = p.find(backend::Part::weights, node.name + ".bias");
  running_mean_ = p.find(backend::Part::weights, node.name + ".running_mean");
  moments_.resize(context.spec.slots);
  for (Moments& m : moments_) {
    m.variance.resize(channels_);
    for (auto* array : {&m.mean, &m.inverse_deviation, &m.scale, &m.shift})
      array->resize(channels_);
  }
  dgamma_ = p.find(backend::Part::gradients, node.name + ".weight");
  dbeta_ = p.find(backend::Part::gradients, node.name + ".bias");
  mean_share_ = p.find(backend::Part::gradients, node.name + ".running_mean");
  var_share_ = p.find(backend::Part::gradients, node.name + ".running_var");
  for (const char* name : {".weight", ".bias", ".running_mean", ".running_var"})
    slices_.push_back(p.slice_index(node.name + name));
  for (auto* array : {&a_, &b_, &c_}) array->resize(channels_);
  chunks_ = context.regions[statistics_region].chunks;
  gradient_chunks_ = context.regions[gradient_region].chunks;
  sums_.resize(chunks_ * 2 * channels_);
  gradient_sums_.resize(gradient_chunks_ * 2 * channels_);
}

double* BatchNorm::sums(std::size_t chunk) {
  double* sums = sums_.data() + chunk * 2 * channels_;
  std::fill_n(sums, 2 * channels_, 0.0);
  return sums;
}

double* BatchNorm::gradient_sums(std::size_t chunk) {
  double* sums = gradient_sums_.data() + chunk * 2 * channels_;
  std::fill_n(sums, 2 * channels_, 0.0);
  return sums;
}

void BatchNorm::normalise(std::size_t begin, std::size_t end) {
  Moments& m = moments_[context_->slot];
  for (std::size_t i = begin; i < end; ++i) {
    double sum = 0, squares = 0;
    for (std::size_t k = 0; k < chunks_; ++k) {
      sum += sums_[k * 2 * channels_ + i];
      squares += sums_[(k * 2 + 1) * channels_ + i];
    }
    const double offset = sum / static_cast<double>(values_);
    const double mean = running_mean_[i] + offset;  // the sums are of x - running mean
    const double variance = std::max(squares / static_cast<double>(values_) - offset * offset, 0.0);
    m.variance[i] = variance;
    m.mean[i] = static_cast<float>(mean);
    m.inverse_deviation[i] = static_cast<float>(1 / std::sqrt(variance + epsilon_));
    m.scale[i] = gamma_[i] * m.inverse_deviation[i];
    m.shift[i] = beta_[i] - m.mean[i] * m.scale[i];
  }
}

// With g the gradient of the normalised output and x' = (x - mean) / deviation:
// dx = gamma / deviation * (g - mean(g) - x' * mean(g * x')).
void BatchNorm::differentiate(std::size_t begin, std::size_t end, bool accumulate) {
  const Moments& m = now();
  for (std::size_t i = begin; i < end; ++i) {
    double sum = 0, sum_x = 0;
    for (std::size_t k = 0; k < gradient_chunks_; ++k) {
      sum += gradient_sums_[k * 2 * channels_ + i];
      sum_x += gradient_sums_[(k * 2 + 1) * channels_ + i];
    }
    const double n = static_cast<double>(values_), inverse = m.inverse_deviation[i],
                 scale = m.scale[i];
    a_[i] = m.scale[i];
    b_[i] = static_cast<float>(-scale * inverse * inverse * sum_x / n);
    c_[i] = static_cast<float>(-scale * sum / n);
    const float dgamma = static_cast<float>(sum_x * inverse), dbeta = static_cast<float>(sum);
    dgamma_[i] = accumulate ? dgamma_[i] + dgamma : dgamma;
    dbeta_[i] = accumulate ? dbeta_[i] + dbeta : dbeta;
    keep_statistics(i, m.mean[i], m.variance[i], accumulate);
  }
}

// What this micro-batch adds to the running statistics, weighted by this rank's share of the rows.
// An earlier micro-batch of the same step fades by 1 - momentum, as if the micro-batches had come
// one after the other.
void BatchNorm::keep_statistics(std::size_t i, double mean, double variance, bool accumulate) {
  const double n = static_cast<double>(values_), unbiased = variance * n / std::max(n - 1, 1.0);
  const double share = context_->scalars().statistics_share * momentum_;
  const double fade = accumulate ? 1 - momentum_ : 0;
  mean_share_[i] = static_cast<float>((accumulate ? fade * mean_share_[i] : 0) + share * mean);
  var_share_[i] = static_cast<float>((accumulate ? fade * var_share_[i] : 0) + share * unbiased);
}

}  // namespace lockstep::cpu
