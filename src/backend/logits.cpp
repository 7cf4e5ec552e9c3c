#include "lockstep/backend/logits.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/backend/cross_entropy.hpp"
#include "lockstep/backend/output_loss.hpp"

namespace lockstep::backend {
namespace {

/// The largest logit, and the sum of exp(logit - highest), which is NaN if any logit is.
struct Exponentials {
  double highest = 0, sum = 0;
};
Exponentials exponentials(std::span<const float> logits) {
  Exponentials of{.highest = logits[0]};
  for (const double logit : logits) of.highest = std::max(of.highest, logit);
  for (const double logit : logits) of.sum += std::exp(logit - of.highest);
  return of;
}

/// How many classes rank above the label.
std::size_t rank_of_label(std::span<const float> logits, std::int32_t label) {
  std::size_t better = 0;
  const float own = logits[static_cast<std::size_t>(label)];
  for (std::size_t k = 0; k < logits.size(); ++k)
    better += arithmetic::outranks(static_cast<std::int32_t>(k), logits[k], label, own);
  return better;
}

}  // namespace

std::size_t predicted_class(std::span<const float> logits, std::size_t label) {
  std::size_t best = label;
  for (std::size_t k = 0; k < logits.size(); ++k) {
    const bool before_label = arithmetic::outranks(static_cast<std::int32_t>(k), logits[k],
                                                   static_cast<std::int32_t>(label), logits[label]);
    if (before_label && (best == label || logits[k] > logits[best])) best = k;
  }
  return best;
}

double log_sum(std::span<const float> logits) {
  const Exponentials of = exponentials(logits);
  return of.highest + std::log(of.sum);
}

std::vector<double> probabilities_of(std::span<const float> logits) {
  const Exponentials of = exponentials(logits);
  std::vector<double> shares;
  for (const double logit : logits) shares.push_back(std::exp(logit - of.highest) / of.sum);
  return shares;
}

double top_probability(std::span<const float> logits) { return 1 / exponentials(logits).sum; }

namespace {

void class_loss(const LossSpec& spec, std::span<const float> logits, const data::Target& target,
                float scale, Metrics& metrics, float* gradient) {
  const arithmetic::OutputWeights weights{spec.weights.empty() ? nullptr : spec.weights.data()};
  double all = 0, weight_sum = 0;
  for (std::size_t k = 0; k < logits.size(); ++k) {
    const double weight = weights.of(static_cast<std::int32_t>(k));
    all += weight * static_cast<double>(logits[k]);
    weight_sum += weight;
  }
  const double sum = log_sum(logits);
  const std::int32_t other = target.label_b < 0 ? target.label_a : target.label_b;
  const arithmetic::Wanted wanted = arithmetic::wanted(
      target.label_a, other, target.mix, spec.smoothing, logits.size(), weights, weight_sum);
  const auto logit_of = [&](std::int32_t label) { return logits[static_cast<std::size_t>(label)]; };
  metrics.loss +=
      arithmetic::cross_entropy(wanted, sum, logit_of(wanted.a), logit_of(wanted.b), all);
  metrics.rows += 1;
  const std::size_t better = rank_of_label(logits, wanted.a);
  metrics.top1 += better < 1;
  metrics.top5 += better < 5;
  for (std::size_t k = 0; gradient != nullptr && k < logits.size(); ++k) {
    const auto label = static_cast<std::int32_t>(k);
    gradient[k] =
        arithmetic::logit_gradient(wanted, label, logits[k], sum, scale, weights.of(label));
  }
}

}  // namespace

void count_row(Metrics& metrics, std::span<const float> logits, const data::Target& target) {
  row_loss({}, logits, target, nullptr, 1, metrics, nullptr);
}

void row_loss(const LossSpec& spec, std::span<const float> logits, const data::Target& target,
              const float* wanted, float scale, Metrics& metrics, float* gradient) {
  if (target.label_a < 0) {
    if (gradient != nullptr) std::fill_n(gradient, logits.size(), 0.f);
    return;
  }
  if (spec.task == data::Task::classes)
    return class_loss(spec, logits, target, scale, metrics, gradient);
  const arithmetic::OutputRule rule{spec.task, spec.smoothing, spec.delta};
  const double share = 1 / static_cast<double>(logits.size());
  double sum = 0;
  for (std::size_t k = 0; k < logits.size(); ++k) {
    const arithmetic::CountedOutput of = arithmetic::judge_output(
        rule, logits[k], wanted[k], spec.weights.empty() ? 1 : spec.weights[k]);
    sum += of.loss;
    for (std::size_t i = 0; i < metrics.sums.size(); ++i) metrics.sums[i] += of.sums[i];
    if (gradient != nullptr) gradient[k] = static_cast<float>(scale * share * of.gradient);
  }
  metrics.loss += sum * share;
  metrics.rows += 1;
}

}  // namespace lockstep::backend
