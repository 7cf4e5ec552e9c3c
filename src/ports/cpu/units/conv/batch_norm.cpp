#include "ports/cpu/units/conv/batch_norm.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::cpu {

void BatchNorm::plan(Context& context, std::size_t node_index, std::size_t statistics_region,
                     std::size_t gradient_region) {
  context_ = &context;
  const nn::Node& node = context.network.nodes[node_index];
  channels_ = node.shape.channels;
  const nn::TilePlace& tile = context.spec.tile;
  values_ = context.spec.batch * tile.of(node.shape.height).count * node.shape.width;
  const std::size_t ranks = context.span() ? context.span()->ranks() : 1;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    row_values_.push_back((tile.is_whole()
                               ? node.shape.height
                               : nn::even_lines(node.shape.height, rank, tile.count).count) *
                          node.shape.width);
  epsilon_ = node.epsilon;
  momentum_ = node.momentum;
  CpuParameters& p = context.parameters;
  gamma_ = p.find(backend::Part::weights, node.name + ".weight");
  beta_ = p.find(backend::Part::weights, node.name + ".bias");
  running_mean_ = p.find(backend::Part::weights, node.name + ".running_mean");
  moments_.resize(context.spec.slots);
  for (Moments& m : moments_) {
    for (auto* array : {&m.count, &m.variance}) array->resize(channels_);
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
  const std::size_t chunk_bytes = 2 * channels_ * sizeof(double);
  sums_ = context.forward_buffer(chunks_ * chunk_bytes, statistics_region, gradient_region);
  gradient_sums_ =
      context.backward_buffer(gradient_chunks_ * chunk_bytes, gradient_region, statistics_region);
  if (context.span()) plan_messages(gradient_region, statistics_region);
}

/// Backward needs the sums in the region of the convolution, forward the statistics in the next.
void BatchNorm::plan_messages(std::size_t forward_region, std::size_t backward_region) {
  NormMessage& statistics = context_->norm_statistics[forward_region];
  const auto tell_statistics = [this](std::size_t begin, std::size_t end, float* mean,
                                      float* squares) {
    for (std::size_t i = begin; i < end; ++i) {
      const Statistics own = own_statistics(i);
      mean[i] = static_cast<float>(own.mean);
      squares[i] = static_cast<float>(own.variance * own.count);
    }
  };
  told_statistics_ = {&statistics, statistics.add(channels_, tell_statistics)};
  NormMessage& sums = context_->norm_sums[backward_region];
  const auto tell_sums = [this](std::size_t begin, std::size_t end, float* of_g, float* of_gx) {
    for (std::size_t i = begin; i < end; ++i) {
      const Sums own = own_gradient_sums(i);
      of_g[i] = static_cast<float>(own.first);
      of_gx[i] = static_cast<float>(own.second);
    }
  };
  told_sums_ = {&sums, sums.add(channels_, tell_sums)};
}

double* BatchNorm::sums(std::size_t chunk) {
  double* sums = context_->at<double>(sums_) + chunk * 2 * channels_;
  std::fill_n(sums, 2 * channels_, 0.0);
  return sums;
}

double* BatchNorm::gradient_sums(std::size_t chunk) {
  double* sums = context_->at<double>(gradient_sums_) + chunk * 2 * channels_;
  std::fill_n(sums, 2 * channels_, 0.0);
  return sums;
}

BatchNorm::Statistics BatchNorm::own_statistics(std::size_t i) const {
  const double* sums = context_->at<double>(sums_);
  double sum = 0, squares = 0;
  for (std::size_t k = 0; k < chunks_; ++k) {
    sum += sums[k * 2 * channels_ + i];
    squares += sums[(k * 2 + 1) * channels_ + i];
  }
  const double count = static_cast<double>(values_), offset = sum / count;
  return {.count = count,
          .mean = running_mean_[i] + offset,  // the sums are of x - running mean
          .variance = std::max(squares / count - offset * offset, 0.0)};
}

BatchNorm::Statistics BatchNorm::statistics(std::size_t i) const {
  const auto& [message, place] = told_statistics_;
  if (!message) return own_statistics(i);
  const backend::SampleMoments all = message->moments(place, i, row_values_);
  return {.count = all.count, .mean = all.mean, .variance = all.variance()};
}

void BatchNorm::normalise(std::size_t begin, std::size_t end) {
  Moments& m = moments_[context_->slot];
  for (std::size_t i = begin; i < end; ++i) {
    const Statistics of_batch = statistics(i);
    m.count[i] = of_batch.count;
    m.variance[i] = of_batch.variance;
    m.mean[i] = static_cast<float>(of_batch.mean);
    m.inverse_deviation[i] = static_cast<float>(1 / std::sqrt(of_batch.variance + epsilon_));
    m.scale[i] = gamma_[i] * m.inverse_deviation[i];
    m.shift[i] = beta_[i] - m.mean[i] * m.scale[i];
  }
}

BatchNorm::Sums BatchNorm::own_gradient_sums(std::size_t i) const {
  const double* sums = context_->at<double>(gradient_sums_);
  Sums own;
  for (std::size_t k = 0; k < gradient_chunks_; ++k) {
    own.first += sums[k * 2 * channels_ + i];
    own.second += sums[(k * 2 + 1) * channels_ + i];
  }
  return own;
}

// With g the gradient of the normalised output and x' = (x - mean) / deviation:
// dx = gamma / deviation * (g - mean(g) - x' * mean(g * x')).
// gamma's and beta's gradients are sums over this rank's rows alone: the exchange adds them up.
void BatchNorm::differentiate(std::size_t begin, std::size_t end, bool accumulate) {
  const Moments& m = now();
  for (std::size_t i = begin; i < end; ++i) {
    const Sums own = own_gradient_sums(i);
    const Sums all = told_sums_.message ? told_sums_.message->sums(told_sums_.place, i) : own;
    const double n = m.count[i], inverse = m.inverse_deviation[i], scale = m.scale[i];
    a_[i] = m.scale[i];
    b_[i] = static_cast<float>(-scale * inverse * inverse * all.second / n);
    c_[i] = static_cast<float>(-scale * all.first / n);
    const float dgamma = static_cast<float>(own.second * inverse),
                dbeta = static_cast<float>(own.first);
    dgamma_[i] = accumulate ? dgamma_[i] + dgamma : dgamma;
    dbeta_[i] = accumulate ? dbeta_[i] + dbeta : dbeta;
    keep_statistics(i, {n, m.mean[i], m.variance[i]}, accumulate);
  }
}

// What this micro-batch adds to the running statistics, weighted by this rank's share of the rows.
// An earlier micro-batch of the same step fades by 1 - momentum, as if the micro-batches had come
// one after the other.
void BatchNorm::keep_statistics(std::size_t i, const Statistics& of_batch, bool accumulate) {
  const auto& [n, mean, variance] = of_batch;
  const double unbiased = variance * n / std::max(n - 1, 1.0);
  const double share = context_->scalars().statistics_share * momentum_;
  const double fade = accumulate ? 1 - momentum_ : 0;
  mean_share_[i] = static_cast<float>((accumulate ? fade * mean_share_[i] : 0) + share * mean);
  var_share_[i] = static_cast<float>((accumulate ? fade * var_share_[i] : 0) + share * unbiased);
}

}  // namespace lockstep::cpu
